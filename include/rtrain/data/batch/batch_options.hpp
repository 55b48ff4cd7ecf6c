// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options for reading a shard in batches.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::data {

/// Options of a loop over a shard: `worker.dataset_shard("train").batches({.size = 64})`.
struct BatchOptions {
    std::int64_t size = 256; ///< rows in a batch of this rank, at least 1
    bool shuffle = false;    ///< a new permutation each epoch, the same on all ranks
    std::uint64_t seed = 0;  ///< of the permutations
    bool drop_last = false;  ///< drop rows that do not fill a batch or divide between ranks
    /// The number of batches that all ranks together take in a step, to accumulate gradients over
    /// several passes. Each rank takes the same number of consecutive ones. 0: one per rank.
    /// Checkpoints save positions between steps only.
    std::int64_t micro_batches = 0;
    /// The number of batches that `threads` read ahead of the loop; 0: two per thread.
    int prefetch = 0;
    /// The number of threads of this rank that read batches; 0: the loop reads each batch itself.
    /// Functions of map_batches() and `collate` then run on several threads concurrently. Batches
    /// do not depend on this number, unless these functions use torch's generators, which only 0
    /// seeds for each batch. Use data::Random instead.
    int threads = 0;
    /// Memory limit of data::Streaming on each rank: see stream_reader.hpp. All shuffle windows
    /// together take half of it.
    std::int64_t memory_bytes = std::int64_t{256} << 20;
    /// Transforms each batch before the loop receives it.
    std::function<Batch(Batch)> collate = nullptr;
    /// Types to which columns are converted, by name, after `collate`.
    std::map<std::string, at::ScalarType> dtypes = {};
    /// Copies batches to page-locked memory after `dtypes`, on `threads` if there are any: the
    /// transfer to a GPU then takes less of the loop's time. No effect without CUDA.
    bool pin_memory = false;
    /// True: each row is read once, so some ranks may have one row less, or none. False: rows are
    /// repeated, so that all ranks have equally many batches. Default: true if gradients are off
    /// when the loop begins, as under torch::NoGradGuard in an evaluation.
    std::optional<bool> each_row_once = std::nullopt;
};

/// Throws DataError [RT-D8, RT-D14, RT-D70] if `ranks` cannot read with these options.
inline void require_usable(const BatchOptions& options, int ranks) {
    if (options.size < 1) {
        throw DataError("RT-D8", detail::concat("batches() was called with batches of ",
                                                options.size, " rows; expected at least 1"));
    }
    if (options.micro_batches < 0 || options.micro_batches % ranks != 0) {
        throw DataError("RT-D14", detail::concat("batches() was called with steps of ",
                                                 options.micro_batches, " micro-batches on ", ranks,
                                                 " ranks; expected a multiple of the ranks, or 0"));
    }
    if (options.threads < 0 || options.prefetch < 0) {
        throw DataError("RT-D70", detail::concat("batches() was called with ", options.threads,
                                                 " threads that read ", options.prefetch,
                                                 " batches ahead; expected at least 0"));
    }
}

/// Returns a batch as the loop receives it. Throws DataError [RT-D2] if a column of `dtypes` is
/// missing.
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
