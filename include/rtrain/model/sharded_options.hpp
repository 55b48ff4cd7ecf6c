// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of `worker.prepare(model, ShardedOptions{})`.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/options.hpp>

#include <cstdint>
#include <variant>

namespace rtrain {

/// One copy of the weights a node, in memory that its ranks share; each rank holds gradients and
/// the optimizer's state of its part only. So Adam needs 4 bytes for each float32 parameter and
/// node, and 12 for each parameter and rank divided by the number of ranks, instead of 16 a rank.
struct ShardedOptions {
    /// Size of a slot in bytes: gradients travel in pieces of at most that much. Each rank has two.
    std::int64_t slot_bytes = std::int64_t{4} << 20;
    /// Those that hold for both engines: find_unused_parameters, broadcast_buffers, autocast,
    /// check_gradients, check_parameters, ignore, group. ConfigError [RT-C12] for a hook and for
    /// reduction_order micro_batches. Sizes of buckets, and where a gradient's memory is, mean
    /// nothing here.
    DataParallelOptions data_parallel = {};
};

namespace detail {

/// Throws ConfigError: RT-C11 for values that cannot work, RT-C12 for ones that exclude each other.
inline void check_options(const ShardedOptions& options) {
    constexpr std::int64_t least = 4096;
    if (options.slot_bytes < least) {
        throw ConfigError("RT-C11", concat("slot_bytes is ", options.slot_bytes, "; expected ",
                                           least, " or more"));
    }
    if (!std::holds_alternative<hook::None>(options.data_parallel.hook)) {
        throw ConfigError("RT-C12", "a sharded model sends gradients as they are, but a hook is "
                                    "set; leave the hook out, or prepare the model with "
                                    "DataParallelOptions");
    }
    if (options.data_parallel.reduction_order != ReductionOrder::ranks) {
        throw ConfigError("RT-C12", "a sharded model adds gradients up in the order of ranks, but "
                                    "reduction_order is micro_batches; leave it out, or prepare "
                                    "the model with DataParallelOptions");
    }
}

} // namespace detail
} // namespace rtrain
