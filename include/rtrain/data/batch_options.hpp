// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a shard is read in batches.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch.hpp>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::data {

/// How a loop reads a shard: `worker.dataset_shard("train").batches({.size = 64})`.
struct BatchOptions {
    std::int64_t size = 256; ///< rows in a batch of this rank, at least 1
    bool shuffle = false;    ///< another permutation each epoch, the same on all ranks
    std::uint64_t seed = 0;  ///< of the permutations
    bool drop_last = false;  ///< drop rows that fill no batch or do not divide between ranks
    /// Batches that all ranks together take in a step, for gradients that are added up over several
    /// passes: each rank takes the same number of consecutive ones. 0: one a rank. A place within a
    /// step is not saved, only that before it.
    std::int64_t micro_batches = 0;
    /// Batches that are read ahead of the loop by `threads`; 0: two for each thread.
    int prefetch = 0;
    /// Threads of this rank that read batches; 0: the loop reads each when it wants it. The batches
    /// are the same with any number, unless functions of map_batches() or `collate`, which then run
    /// on several threads at a time, draw from torch's generators: only 0 seeds these for each
    /// batch. Draw from a data::Random there.
    int threads = 0;
    /// What data::Streaming may keep in memory on each rank: stream_reader.hpp says for what. The
    /// windows in which it shuffles have half of it, together.
    std::int64_t memory_bytes = std::int64_t{256} << 20;
    /// Makes of each batch what the loop gets.
    std::function<Batch(Batch)> collate = nullptr;
    /// What columns are converted to, by name, behind `collate`.
    std::map<std::string, at::ScalarType> dtypes = {};
    /// Puts batches into page-locked memory behind `dtypes`, where `threads` read them: their way
    /// to a GPU then takes less of the loop's time. Without CUDA nothing is done.
    bool pin_memory = false;
    /// Whether each row is read once, so that some ranks may have one row less, or none; else rows
    /// are repeated, so that all have equally many batches. Not said: what c10::GradMode says when
    /// the loop begins. Under torch::NoGradGuard, which is an evaluation, each row is read once.
    std::optional<bool> each_row_once = std::nullopt;
};

/// Throws DataError [RT-D8, RT-D14, RT-D70] for options that `ranks` cannot read with.
inline void require_usable(const BatchOptions& options, int ranks) {
    if (options.size < 1) {
        throw DataError("RT-D8", detail::concat("batches() was asked for batches of ", options.size,
                                                " rows; expected at least 1"));
    }
    if (options.micro_batches < 0 || options.micro_batches % ranks != 0) {
        throw DataError("RT-D14", detail::concat("batches() was asked for steps of ",
                                                 options.micro_batches, " micro-batches on ", ranks,
                                                 " ranks; expected a multiple of the ranks, or 0"));
    }
    if (options.threads < 0 || options.prefetch < 0) {
        throw DataError("RT-D70", detail::concat("batches() was asked for ", options.threads,
                                                 " threads that read ", options.prefetch,
                                                 " batches ahead; expected at least 0"));
    }
}

/// A batch as the loop gets it. Throws DataError [RT-D2] when a column of `dtypes` is not there.
[[nodiscard]] inline Batch collated(Batch batch, const BatchOptions& options) {
    if (options.collate) {
        batch = options.collate(std::move(batch));
    }
    for (const auto& [name, type] : options.dtypes) {
        batch[name] = batch[name].to(type);
    }
    if (options.pin_memory && at::hasCUDA()) {
        batch.each_column([](at::Tensor& tensor) {
            if (tensor.device().is_cpu() && tensor.layout() == at::kStrided) {
                tensor = tensor.pin_memory();
            }
        });
    }
    return batch;
}

} // namespace rtrain::data
