// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks of a test case, without a trainer.
#pragma once

#include <rtrain/backend/mpi.hpp>
#include <rtrain/model/data_parallel.hpp>

#include <chrono>
#include <memory>
#include <utility>

namespace test {

struct Ranks {
    std::shared_ptr<rtrain::backend::Mpi> mpi = std::make_shared<rtrain::backend::Mpi>(
        rtrain::backend::Mpi::Options{.timeout = std::chrono::seconds(60)});
    Ranks() { mpi->start({}); }
    ~Ranks() { (void)mpi->finish({}); }
    Ranks(const Ranks&) = delete;
    Ranks& operator=(const Ranks&) = delete;

    [[nodiscard]] int rank() const { return mpi->rank(); }
    [[nodiscard]] int size() const { return mpi->size(); }

    template <class M>
    auto prepare(std::shared_ptr<M> module, const rtrain::DataParallelOptions& options = {}) {
        return rtrain::DataParallel<M, rtrain::backend::Mpi>(mpi, std::move(module), options);
    }

    /// Whether a tensor has the same bits on all ranks. Collective.
    [[nodiscard]] bool agree_on(const at::Tensor& tensor) {
        const at::Tensor all = mpi->all_gather(tensor);
        bool same = true;
        for (int rank = 0; rank < size(); ++rank) {
            same = same && all[rank].equal(all[0]);
        }
        return same;
    }
};

} // namespace test
