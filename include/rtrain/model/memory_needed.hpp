// SPDX-License-Identifier: Apache-2.0
/// @file
/// Estimates the memory for training a model, before it is prepared.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/options/options.hpp>
#include <rtrain/model/options/sharded_options.hpp>
#include <rtrain/model/parameters/synchronize.hpp>
#include <rtrain/model/sharded/plan/shard_buffers.hpp>
#include <rtrain/model/sharded/plan/shard_dtypes.hpp>
#include <rtrain/model/sharded/plan/shard_plan.hpp>
#include <rtrain/model/sharded/plan/units.hpp>

#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

namespace rtrain {

/// Bytes that each rank needs to train a model's parameters. Memory shared by the ranks of a node
/// counts once per node, divided evenly among them, as in Pss of /proc. Excludes activations,
/// buffers, what hooks keep, and the process itself.
struct MemoryNeeded {
    std::int64_t weights = 0;   ///< the parameters, and parts of them in another type
    std::int64_t gradients = 0; ///< from backward to the step
    std::int64_t moments = 0;   ///< the optimizer's state
    std::int64_t slots = 0;     ///< for sending gradients
    /// Additional, transient, where moments are updated within backward: the largest gradient, as
    /// autograd makes it.
    std::int64_t passing = 0;
    int ranks_per_node = 1; ///< as passed to memory_needed()

    [[nodiscard]] std::int64_t rank() const noexcept {
        return weights + gradients + moments + slots;
    }
    /// Bytes of all ranks of a node.
    [[nodiscard]] std::int64_t node() const noexcept { return rank() * ranks_per_node; }
};

namespace detail {

inline void check_memory_question(int nodes, int ranks_per_node, int moments) {
    if (nodes < 1 || ranks_per_node < 1 || moments < 0) {
        throw ConfigError("RT-C11",
                          concat("memory_needed() was called for ", nodes, " nodes with ",
                                 ranks_per_node, " ranks each, and ", moments,
                                 " moments; expected at least 1 of both, and at least 0 moments"));
    }
}

/// Bytes of weights on one of `ranks`, where `sharing` ranks share a copy.
[[nodiscard]] inline std::int64_t weights_of_rank(const torch::nn::Module& module,
                                                  const std::vector<NamedParameter>& parameters,
                                                  const ShardedOptions& options, int ranks,
                                                  int sharing) {
    const auto kept = shard_dtypes(parameters, options);
    const bool gathers = options.level == Shard::parameters && ranks > sharing;
    const auto bytes_of = [&](std::size_t i) {
        return parameters[i].tensor.numel() * static_cast<std::int64_t>(c10::elementSize(kept[i]));
    };
    std::int64_t shared = 0; // in the model's types
    std::int64_t own = 0;    // parts in other memory
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor& tensor = parameters[i].tensor;
        shared += bytes_of(i);
        if (gathers || kept[i] != tensor.scalar_type()) {
            own +=
                slices_of(tensor, ranks).longest * static_cast<std::int64_t>(tensor.element_size());
        }
    }
    if (gathers) {
        std::int64_t most = 0;
        for (const Unit& unit : plan_units(module, parameters, options.units)) {
            std::int64_t bytes = 0;
            for (const std::size_t i : unit.parameters) {
                bytes += bytes_of(i);
            }
            most = std::max(most, bytes);
        }
        shared = options.resident_units * most;
    }
    return (shared + sharing - 1) / sharing + own;
}

struct RankCounts {
    int nodes;
    int ranks_per_node;
};

/// Bytes of the largest message that sends weights to other copies of them: weights that are
/// stepped, `stepped`, or units that an operator is about to use.
[[nodiscard]] inline std::int64_t weight_messages_of_rank(
    const torch::nn::Module& module, const std::vector<NamedParameter>& parameters,
    const std::vector<std::size_t>& stepped, const ShardedOptions& options, const RankCounts& of) {
    const auto [nodes, ranks_per_node] = of;
    const bool shares = options.share != Share::none;
    const int ranks = nodes * ranks_per_node;
    std::vector<std::vector<std::size_t>> together{stepped};
    if (options.level == Shard::parameters && (nodes > 1 || !shares)) {
        together.clear();
        for (const Unit& unit : plan_units(module, parameters, options.units)) {
            together.push_back(unit.parameters);
        }
    }
    const auto kept = shard_dtypes(parameters, options);
    std::int64_t most = 0;
    const auto look_at = [&](int rows, int owners) { // `rows` rows, each of what `owners` ranks own
        for (const auto& indices : together) {
            for_each_weight_message(
                indices.size(),
                [&](std::size_t i) {
                    const std::size_t index = indices[i];
                    return slices_of(parameters[index].tensor, ranks).longest * owners *
                           static_cast<std::int64_t>(c10::elementSize(kept[index]));
                },
                [&](std::size_t, std::size_t, std::int64_t bytes) {
                    most = std::max(most, rows * bytes);
                });
        }
    };
    if (nodes > 1) {
        look_at(nodes, 1);
    }
    if (!shares && ranks_per_node > 1) {
        look_at(ranks_per_node, nodes);
    }
    return most;
}

} // namespace detail

/// Memory that prepare(module, options) and an optimizer need on each of `ranks_per_node` ranks of
/// `nodes`. `moments`: numbers that the optimizer keeps for a parameter: 2 for Adam and AdamW (3
/// with amsgrad), 1 for SGD with momentum, RMSprop and Adagrad, 0 for plain SGD. Less is needed on
/// CPUs where the ranks of a node step together: see FusedOptimizer. Throws ConfigError [RT-C11]
/// for numbers out of range.
[[nodiscard]] inline MemoryNeeded memory_needed(const torch::nn::Module& module,
                                                const DataParallelOptions& options, int nodes,
                                                int ranks_per_node, int moments = 2) {
    detail::check_memory_question(nodes, ranks_per_node, moments);
    const bool kept_twice = !options.gradient_as_bucket_view && nodes * ranks_per_node > 1;
    MemoryNeeded needed{.ranks_per_node = ranks_per_node};
    std::int64_t sent = 0;
    for (const auto& [name, tensor] : detail::distinct_parameters(module, options.ignore)) {
        const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
        needed.weights += bytes;
        if (tensor.requires_grad()) {
            sent += bytes;
            needed.gradients += kept_twice ? 2 * bytes : bytes;
            needed.moments += moments * bytes;
            needed.passing = std::max(needed.passing, bytes);
        }
    }
    // Messages between nodes: what the others send of this rank's slices.
    needed.slots = sent * (nodes - 1) / nodes / ranks_per_node;
    return needed;
}

/// The same for a sharded model. With Share::numa, NUMA nodes are the nodes, and `ranks_per_node`
/// is ranks per NUMA node.
///
/// @code
/// const auto needed = rtrain::memory_needed(*gpt, rtrain::ShardedOptions{}, 1, 4);
/// std::cout << needed.node() / 1e9 << " GB a node\n";
/// @endcode
[[nodiscard]] inline MemoryNeeded memory_needed(const torch::nn::Module& module,
                                                const ShardedOptions& options, int nodes,
                                                int ranks_per_node, int moments = 2) {
    detail::check_options(options);
    MemoryNeeded needed =
        memory_needed(module, options.data_parallel, nodes, ranks_per_node, moments);
    const int ranks = nodes * ranks_per_node;
    if (ranks == 1) {
        return needed;
    }
    const auto parameters = detail::distinct_parameters(module, options.data_parallel.ignore);
    const auto kept = detail::shard_dtypes(parameters, options);
    std::vector<bool> trains;
    std::vector<std::size_t> stepped;
    std::int64_t whole = 0; // gradients
    std::int64_t part = 0;
    std::int64_t longest = 0;
    needed.passing = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor& tensor = parameters[i].tensor;
        const auto bytes = tensor.numel() * static_cast<std::int64_t>(c10::elementSize(kept[i]));
        const auto slice = detail::slices_of(tensor, ranks).longest *
                           static_cast<std::int64_t>(tensor.element_size());
        trains.push_back(tensor.requires_grad());
        if (trains.back()) {
            stepped.push_back(i);
            whole += static_cast<std::int64_t>(tensor.nbytes());
            part += slice;
            longest = std::max(longest, slice);
            needed.passing = std::max(needed.passing, bytes);
        }
    }
    const auto chunks = detail::plan_chunks(parameters, detail::types_of(parameters), trains, ranks,
                                            options.slot_bytes);
    const auto slot = static_cast<std::int64_t>(detail::slot_bytes_of(chunks, ranks));
    needed.slots = 2 * slot;
    needed.weights = detail::weights_of_rank(module, parameters, options, ranks,
                                             options.share == Share::none ? 1 : ranks_per_node);
    needed.slots += detail::weight_messages_of_rank(module, parameters, stepped, options,
                                                    {nodes, ranks_per_node});
    needed.gradients =
        options.step_in_backward ? detail::room_bytes_of(chunks) * (nodes == 1 ? 1 : 2) : part;
    if (options.level == Shard::optimizer) {
        needed.gradients += whole;
    }
    needed.moments = moments * part;
    if (std::holds_alternative<offload::Disk>(options.offload)) { // some are read, some written
        const auto at_once = static_cast<std::int64_t>(detail::bytes_stepped_at_once);
        needed.moments =
            std::min(needed.moments, std::int64_t{3} * moments * std::max(at_once, longest));
    }
    if (nodes > 1) { // messages of gradients
        needed.slots += 2 * slot / ranks_per_node;
    }
    return needed;
}

} // namespace rtrain
