// SPDX-License-Identifier: Apache-2.0
/// @file
/// A test case's ranks, and models prepared on them.
#pragma once

#include <rtrain/backend/mpi.hpp>
#include <rtrain/backend/the_backend.hpp>
#include <rtrain/model/data_parallel.hpp>

#include <chrono>
#include <memory>
#include <utility>

namespace test {

struct Ranks {
    std::shared_ptr<rtrain::backend::Mpi> mpi = std::make_shared<rtrain::backend::Mpi>(
        rtrain::backend::Mpi::Options{.timeout = std::chrono::seconds(60)});
    /// What this rank tells the others at the end. One that a test makes fail sets it, so that
    /// others who wait for it stop.
    rtrain::Outcome outcome;
    Ranks() { mpi->start({}); }
    ~Ranks() { (void)mpi->finish(outcome); }
    Ranks(const Ranks&) = delete;
    Ranks& operator=(const Ranks&) = delete;

    [[nodiscard]] int rank() const { return mpi->rank(); }
    [[nodiscard]] int size() const { return mpi->size(); }

    /// As rtrain's own parts see them.
    [[nodiscard]] std::shared_ptr<rtrain::detail::AnyBackend> any() const {
        return std::make_shared<rtrain::detail::TheBackend<rtrain::backend::Mpi>>(mpi);
    }

    template <class M>
    auto prepare(std::shared_ptr<M> module, const rtrain::DataParallelOptions& options = {}) {
        return rtrain::DataParallel<M, rtrain::backend::Mpi>(mpi, std::move(module), options);
    }

    /// Whether all ranks hold the same bits.
    [[nodiscard]] bool agree(const torch::Tensor& tensor) {
        const auto all = mpi->all_gather(tensor.detach().contiguous());
        bool equal = true;
        for (int other = 1; other < size(); ++other) {
            equal = equal && all[other].equal(all[0]);
        }
        return equal;
    }
};

} // namespace test
