// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of `worker.prepare(model, ShardedOptions{})`.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/options.hpp>

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace rtrain {

/// What ranks hold in parts, besides what the optimizer keeps: all ranks of all nodes divide it
/// among them.
enum class Shard : unsigned char {
    /// As ZeRO-1: passes under no_sync() add gradients up on each rank, whole, and communicate
    /// nothing; the next pass sends their sums. That takes as much memory a rank as the parameters,
    /// from the first of these passes to the end of that one.
    optimizer,
    /// As ZeRO-2: gradients are never held whole. Passes under no_sync() communicate as all others,
    /// and their sums are kept in parts.
    gradients,
    /// As ZeRO-3 and FSDP, over nodes: a node keeps its share of the weights only. Units of them
    /// (ShardedOptions::units) come whole into a few slots when an operator is about to use them,
    /// in forward and in backward. Each is sent once more than with `gradients`. All ranks run the
    /// same layers in the same order, in training and in evaluation (ModelError [RT-M49]), each in
    /// the thread that has prepared the model [RT-M50], on GPUs in any. On one node whose ranks
    /// share the weights there is nothing to gather, and it is `gradients`.
    parameters
};

/// Who has a copy of the weights. On GPUs each rank is a node of its own.
enum class Share : unsigned char {
    /// The ranks of a node read the same. Where they cannot share memory, as ranks in several
    /// containers of one machine, it is `none`, and a warning says so.
    node,
    /// The ranks of a machine that are bound to the same NUMA node, as mpirun --bind-to numa and
    /// --bind-to core bind them: reading weights then stays within it. Ranks of several exchange
    /// gradients and weights as machines do. `node` on machines with one NUMA node, and, behind a
    /// warning, when a rank of any machine may run on cores of several.
    numa,
    /// Each rank: with Shard::parameters it has its part, and slots of its own; with the other
    /// levels all weights, and steps end with a copy of them from rank to rank. For machines on
    /// which reading memory of another processor is so slow that copies are worth it.
    none
};

/// Where what optimizers keep for a sharded model's parameters lies.
namespace offload {

/// In memory.
struct None {};
/// In files of this directory, on a fast disk of the node: each rank has one, without a name, as
/// large as what it keeps. A step reads and writes all of it, and so takes as long as the disk
/// needs; memory holds a few MiB. On one rank it stays in memory. StorageError [RT-S3], from
/// prepare(optimizer) or a step, when the disk has no room; ConfigError [RT-C12] on GPUs.
struct Disk {
    /// Exists, and is on a disk; what is in memory, as a tmpfs, gives nothing.
    std::filesystem::path directory;
};

/// Of models on GPUs: in memory of the host that the GPU can reach (pinned), with the gradients'
/// sums and float32 parts, and the CPU computes steps. The GPU holds weights and slots. On the CPU
/// it is None; on one rank, too.
struct Host {};

} // namespace offload

/// Where it lies: one of the three.
using Offload = std::variant<offload::None, offload::Disk, offload::Host>;

/// One copy of the weights a node, in memory that its ranks share; each rank holds gradients and
/// the optimizer's state of its part only. So Adam needs 4 bytes for each float32 parameter and
/// node, and 12 for each parameter and rank divided by the number of ranks, instead of 16 a rank.
struct ShardedOptions {
    /// How much of training is divided among ranks. On one node whose ranks share the weights,
    /// `parameters` and `gradients` are the same.
    Shard level = Shard::parameters;
    /// Which ranks have one copy of the weights together.
    Share share = Share::node;
    /// Size of a slot in bytes: gradients travel in pieces of at most that much. Each rank has two.
    std::int64_t slot_bytes = std::int64_t{4} << 20;
    /// With Shard::parameters, what is gathered together: beginnings of parameters' names, of which
    /// each is a unit. "*" stands for any part between dots, so that "layers.*" makes a unit of
    /// each layer. The rest is one unit. Empty: each child of a ModuleList or Sequential, the
    /// outermost ones. ConfigError [RT-C42] for a pattern that no parameter has.
    std::vector<std::string> units = {};
    /// With Shard::parameters, how many units a node has whole at a time, each in a slot as large
    /// as the largest one. ModelError [RT-M48] when an operator uses more at once.
    int resident_units = 2;
    /// Backward itself steps each parameter as soon as the sum of its gradients is there, and keeps
    /// no gradient: 4 bytes for each float32 parameter less, divided by the number of ranks, and
    /// the same bits. optimizer.step() stays behind each backward, and all that is to hold for a
    /// step, such as a learning rate, is set before backward. Where two optimizers have a
    /// parameter, the one that was prepared last steps it. ConfigError [RT-C12] for what needs all
    /// gradients first: Shard::optimizer, check_gradients, find_unused_parameters,
    /// clip_grad_norm_(), no_sync(), a GradScaler; ModelError [RT-M46] for a second backward before
    /// step(). One rank keeps gradients, and optimizer.step() steps.
    bool step_in_backward = false;
    /// at::kBFloat16: the model's float32 parameters of two and more dimensions become that, one
    /// copy a node as before, and each rank has float32 parts besides, which optimizers step and
    /// checkpoints hold. For models under autocast in the same type (ConfigError [RT-C12] without):
    /// what it computes in that type has the bits that float32 weights give, without a conversion
    /// each time; what else reads such a parameter, as an embedding, gets it rounded. On one rank
    /// parameters stay as they are.
    std::optional<at::ScalarType> parameter_type = std::nullopt;
    /// For example `offload::Disk{"/scratch"}`. The same bits.
    Offload offload = offload::None{};
    /// Those that hold for both engines: find_unused_parameters, broadcast_buffers, autocast,
    /// check_gradients, check_parameters, ignore, group, and the hooks Float16 and BFloat16, in
    /// which nodes exchange gradients: those of a node are added up exactly, the sum is rounded.
    /// With one rank a node these are the bits of DataParallel, which rounds each rank's.
    /// ConfigError [RT-C12] for other hooks and for reduction_order micro_batches. Sizes of
    /// buckets, and where a gradient's memory is, mean nothing here.
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
    if (options.resident_units < 1) {
        throw ConfigError(
            "RT-C11", concat("resident_units is ", options.resident_units, "; expected 1 or more"));
    }
    if (const Hook& hook = options.data_parallel.hook;
        !std::holds_alternative<hook::None>(hook) && !half_type(hook)) {
        throw ConfigError("RT-C12", "a sharded model sends gradients as they are, or with "
                                    "hook::Float16 or hook::BFloat16, but another hook is set; "
                                    "leave it out, or prepare the model with DataParallelOptions");
    }
    if (options.data_parallel.reduction_order != ReductionOrder::ranks) {
        throw ConfigError("RT-C12", "a sharded model adds gradients up in the order of ranks, but "
                                    "reduction_order is micro_batches; leave it out, or prepare "
                                    "the model with DataParallelOptions");
    }
    if (options.parameter_type && *options.parameter_type != at::kBFloat16) {
        throw ConfigError("RT-C11", concat("parameter_type is ", *options.parameter_type,
                                           "; expected at::kBFloat16, or none"));
    }
    if (options.parameter_type && options.data_parallel.autocast != options.parameter_type) {
        throw ConfigError("RT-C12", "parameter_type is at::kBFloat16, but what the model is called "
                                    "with is not cast to it; set data_parallel.autocast, too");
    }
    if (options.step_in_backward && options.level == Shard::optimizer) {
        throw ConfigError("RT-C12", "level Shard::optimizer adds gradients of several passes up, "
                                    "which step_in_backward does not keep; leave out one of the "
                                    "two");
    }
    if (options.step_in_backward && options.data_parallel.check_gradients) {
        throw ConfigError("RT-C12", "step_in_backward steps parameters before all gradients are "
                                    "there, but check_gradients looks at all of them before a "
                                    "step; leave out one of the two");
    }
    if (options.step_in_backward && options.data_parallel.find_unused_parameters) {
        throw ConfigError("RT-C12", "step_in_backward steps parameters before it is known which "
                                    "ones no rank has used, but find_unused_parameters is set; "
                                    "leave out one of the two");
    }
}

/// Throws ConfigError [RT-C12] for `what`, which needs the gradients that step_in_backward does not
/// keep.
[[noreturn]] inline void refuse_with_step_in_backward(const char* what) {
    throw ConfigError("RT-C12", concat(what, ", but with step_in_backward each parameter is "
                                             "stepped within backward, and its gradient is gone; "
                                             "leave out one of the two"));
}

} // namespace detail
} // namespace rtrain
