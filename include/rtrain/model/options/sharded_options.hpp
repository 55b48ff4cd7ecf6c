// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of `worker.prepare(model, ShardedOptions{})`.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/options/options.hpp>

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace rtrain {

/// The state that ranks hold in parts, in addition to the optimizer's: all ranks of all nodes
/// divide it among them.
enum class Shard : unsigned char {
    /// Like ZeRO-1: passes under no_sync() add up whole gradients on each rank, and communicate
    /// nothing; the next pass sends their sums. Each rank then needs as much memory as the
    /// parameters, from the first of these passes to the end of that one.
    optimizer,
    /// Like ZeRO-2: gradients are never held whole. Passes under no_sync() communicate like all
    /// others, and their sums are kept in parts.
    gradients,
    /// Like ZeRO-3 and FSDP, over nodes: a node keeps only its share of the weights. Units of them
    /// (ShardedOptions::units) are gathered whole into a few slots when an operator is about to use
    /// them, in forward and in backward. Each is sent once more than with `gradients`. All ranks
    /// run the same layers in the same order, in training and in evaluation (ModelError [RT-M49]),
    /// each in the thread that prepared the model [RT-M50], on GPUs in any thread. On one node
    /// whose ranks share the weights there is nothing to gather, as with `gradients`.
    parameters
};

/// Which ranks share a copy of the weights. On GPUs each rank counts as a node.
enum class Share : unsigned char {
    /// The ranks of a node share a copy. Where they cannot share memory, such as ranks in several
    /// containers of one machine, it is `none`, with a warning.
    node,
    /// The ranks of a machine that are bound to the same NUMA node, as by mpirun --bind-to numa and
    /// --bind-to core, share a copy: reading weights then stays within it. Ranks of several NUMA
    /// nodes exchange gradients and weights as machines do. It is `node` on machines with one NUMA
    /// node, and, with a warning, when a rank of any machine may run on cores of several.
    numa,
    /// Each rank has a separate copy: with Shard::parameters of its part, and separate slots; with
    /// the other levels of all weights, and steps end with a copy of them from rank to rank. For
    /// machines where reading memory of another processor is so slow that copies pay off.
    none
};

/// Where the optimizer state of sharded models is stored.
namespace offload {

/// In memory.
struct None {};
/// In files of this directory, on a fast disk of the node: one unnamed file per rank, as large as
/// the rank's state. A step reads and writes all of it, and so takes as long as the disk needs;
/// memory holds a few MiB. On one rank, state stays in memory. StorageError [RT-S3], from
/// prepare(optimizer) or a step, when the disk is full; ConfigError [RT-C12] on GPUs.
struct Disk {
    /// Must exist, on a disk; a directory in memory, such as a tmpfs, saves nothing.
    std::filesystem::path directory;
};

/// For models on GPUs: in memory of the host, where the CPU computes steps; the gradients' sums and
/// float32 parts are there, too, in pinned memory. The GPU holds weights and slots. Equivalent to
/// None on the CPU, and on one rank.
struct Host {};

} // namespace offload

/// Where optimizer state is stored: one of the three.
using Offload = std::variant<offload::None, offload::Disk, offload::Host>;

/// One copy of the weights per node, in memory that its ranks share; each rank holds gradients and
/// the optimizer's state of its part only. So Adam needs 4 bytes per float32 parameter and node,
/// and 12 per parameter and rank divided by the number of ranks, instead of 16 per rank.
struct ShardedOptions {
    /// The state that is divided among ranks. On one node whose ranks share the weights,
    /// `parameters` and `gradients` are the same.
    Shard level = Shard::parameters;
    /// Which ranks share a copy of the weights.
    Share share = Share::node;
    /// Size of a slot in bytes: gradients are sent in pieces of at most that much. Each rank has
    /// two.
    std::int64_t slot_bytes = std::int64_t{4} << 20;
    /// With Shard::parameters, the units that are gathered together: prefixes of parameters' names,
    /// of which each is a unit. "*" matches any part between dots, so that "layers.*" makes a unit
    /// of each layer. The rest is one unit. Empty: each child of a ModuleList or Sequential, the
    /// outermost ones. ConfigError [RT-C42] for a pattern that matches no parameter.
    std::vector<std::string> units = {};
    /// With Shard::parameters, the number of whole units that a node holds at a time, each in a
    /// slot as large as the largest one. ModelError [RT-M48] when an operator uses more at the same
    /// time.
    int resident_units = 2;
    /// Backward itself steps each parameter as soon as the sum of its gradients is complete, and
    /// keeps no gradient. This saves 4 bytes for each float32 parameter, divided by the number of
    /// ranks, with the same bits. optimizer.step() still follows each backward; set all that the
    /// step needs, such as a learning rate, before backward. Where two optimizers have a parameter,
    /// the one that was prepared last steps it. ConfigError [RT-C12] for what needs all gradients
    /// first: Shard::optimizer, check_gradients, find_unused_parameters, clip_grad_norm_(),
    /// no_sync(), a GradScaler; ModelError [RT-M46] for a second backward before step(). On one
    /// rank gradients are kept, and optimizer.step() steps.
    bool step_in_backward = false;
    /// at::kBFloat16: the model's float32 parameters of two and more dimensions are stored in this
    /// type, one copy per node as before; each rank also has float32 parts, which optimizers step
    /// and checkpoints hold. For models under autocast in the same type (ConfigError [RT-C12]
    /// without): what is computed in that type has the same bits as with float32 weights, without a
    /// conversion each time. Other readers of such a parameter, such as an embedding, get it
    /// rounded. On one rank parameters stay as they are.
    std::optional<at::ScalarType> parameter_type = std::nullopt;
    /// For example `offload::Disk{"/scratch"}`. The same bits.
    Offload offload = offload::None{};
    /// Options that apply to both engines: find_unused_parameters, broadcast_buffers, autocast,
    /// check_gradients, check_parameters, ignore, group, and the hooks Float16 and BFloat16, in
    /// which nodes exchange gradients: those of a node are added up exactly, the sum is rounded.
    /// With one rank per node these are the bits of DataParallel, which rounds each rank's.
    /// ConfigError [RT-C12] for other hooks and for reduction_order micro_batches. Sizes of
    /// buckets, and gradient_as_bucket_view, have no effect here.
    DataParallelOptions data_parallel = {};
};

namespace detail {

/// Throws ConfigError: RT-C11 for invalid values, RT-C12 for ones that exclude each other.
inline void check_options(const ShardedOptions& options) {
    constexpr std::int64_t least = 4096;
    if (options.slot_bytes < least) {
        throw ConfigError("RT-C11", concat("slot_bytes is ", options.slot_bytes, "; expected ",
                                           least, " or more"));
    }
    if (options.resident_units < 1) {
        throw ConfigError(
            "RT-C11", concat("resident_units is ", options.resident_units, "; expected 1 or more"));
    }
    if (const Hook& hook = options.data_parallel.hook;
        !std::holds_alternative<hook::None>(hook) && !half_type(hook)) {
        throw ConfigError("RT-C12",
                          "a sharded model sends gradients as they are, or with hook::Float16 or "
                          "hook::BFloat16, but a different hook is set; remove the hook, or "
                          "prepare the model with DataParallelOptions");
    }
    if (options.data_parallel.reduction_order != ReductionOrder::ranks) {
        throw ConfigError(
            "RT-C12",
            "a sharded model adds gradients up in the order of ranks, but reduction_order is "
            "micro_batches; remove reduction_order, or prepare the model with DataParallelOptions");
    }
    if (options.parameter_type && *options.parameter_type != at::kBFloat16) {
        throw ConfigError("RT-C11", concat("parameter_type is ", *options.parameter_type,
                                           "; expected at::kBFloat16, or none"));
    }
    if (options.parameter_type && options.data_parallel.autocast != options.parameter_type) {
        throw ConfigError("RT-C12", "parameter_type is at::kBFloat16, but data_parallel.autocast "
                                    "is not; set both to at::kBFloat16");
    }
    if (options.step_in_backward && options.level == Shard::optimizer) {
        throw ConfigError("RT-C12",
                          "level Shard::optimizer adds gradients of several passes up, which "
                          "step_in_backward does not keep; use only one of the two");
    }
    if (options.step_in_backward && options.data_parallel.check_gradients) {
        throw ConfigError(
            "RT-C12", "step_in_backward steps parameters before all gradients are available, but "
                      "check_gradients checks all of them before a step; use only one of the two");
    }
    if (options.step_in_backward && options.data_parallel.find_unused_parameters) {
        throw ConfigError("RT-C12",
                          "step_in_backward steps parameters before it is known which ones no rank "
                          "has used, but find_unused_parameters is set; use only one of the two");
    }
}

/// Throws ConfigError [RT-C12] for `what`, which needs the gradients that step_in_backward does not
/// keep.
[[noreturn]] inline void refuse_with_step_in_backward(const char* what) {
    throw ConfigError(
        "RT-C12", concat(what, ", but with step_in_backward each parameter is stepped within "
                               "backward, and its gradient is discarded; use only one of the two"));
}

} // namespace detail
} // namespace rtrain
