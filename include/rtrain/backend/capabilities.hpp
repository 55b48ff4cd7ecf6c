// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a backend may offer beyond the concept: a concept for each optional member, with what
/// happens without it. TheBackend asks them; a member under its name but of another form would be
/// passed over in silence, so it is a compile error.
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/base/failure.hpp>

#include <ATen/core/Tensor.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace rtrain {

struct ScalingConfig;
namespace comm {
class Communicator;
} // namespace comm

namespace backend {

/// How many ranks a launcher has started; empty in a program started alone, which then becomes the
/// driver and launches them. Without it, fit() trains in this process.
template <class B>
concept CanBeLaunched = requires {
    { B::launched_ranks() } -> std::same_as<std::optional<int>>;
};

/// Called first in fit(): joins the other ranks, checks options. Without it, they are joined
/// already.
template <class B>
concept CanStart = requires(B& backend, const ScalingConfig& scaling) {
    backend.start(scaling);
};

/// Called last: exchanges how each rank ended. Without it, there is a barrier on success; a rank
/// that throws reports only itself, and others may wait for it.
template <class B>
concept CanFinish = requires(B& backend, const Outcome& mine) {
    { backend.finish(mine) } -> std::convertible_to<std::vector<Outcome>>;
};

/// Joins the other ranks anew after a failure that all processes have survived; may return the
/// ranks that were cut out. Without it, a restart takes new processes.
template <class B>
concept CanRejoin = requires(B& backend) {
    backend.rejoin();
};

/// Whether this job goes on without ranks that have died, and whether any job of this program can.
/// Without it, a death ends all ranks.
template <class B>
concept CanSurviveDeaths = requires(const B& backend) {
    { B::can_survive_deaths() } -> std::same_as<bool>;
    { backend.survives_deaths() } -> std::same_as<bool>;
};

template <class B>
[[nodiscard]] bool can_survive_deaths() {
    if constexpr (CanSurviveDeaths<B>) {
        return B::can_survive_deaths();
    } else {
        return false;
    }
}

/// This rank's number on its node. Without it, its rank: all are on one node.
template <class B>
concept KnowsLocalRank = requires(const B& backend) {
    { backend.local_rank() } -> std::same_as<int>;
};

/// The number of ranks on this node. Without it, all of them.
template <class B>
concept KnowsLocalSize = requires(const B& backend) {
    { backend.local_size() } -> std::same_as<int>;
};

/// The number of this node. Without it, 0.
template <class B>
concept KnowsNodeRank = requires(const B& backend) {
    { backend.node_rank() } -> std::same_as<int>;
};

/// Where models and batches go; allows `use_gpu`. Without it, the CPU.
template <class B>
concept HasDevice = requires(const B& backend) {
    { backend.device() } -> std::convertible_to<at::Device>;
};

/// Stacks the tensors of all ranks. Without it, an all-reduce of zeros and one own row.
template <class B>
concept CanAllGather = requires(B& backend, const at::Tensor& tensor) {
    { backend.all_gather(tensor) } -> std::same_as<at::Tensor>;
};

/// Reduces rows and returns this rank's. Without it, an all-reduce of a copy.
template <class B>
concept CanReduceScatter = requires(B& backend, const at::Tensor& tensor) {
    { backend.reduce_scatter(tensor, ReduceOp::sum) } -> std::same_as<at::Tensor>;
};

/// Waits for all ranks. Without it, an all-gather of one byte.
template <class B>
concept HasBarrier = requires(B& backend) {
    backend.barrier();
};

/// Memory for gradient buckets, where reducing is cheapest. Without it, ordinary memory.
template <class B>
concept CanAllocateBuckets = requires(B& backend, std::int64_t elements,
                                      const at::TensorOptions& type) {
    { backend.allocate_bucket(elements, type) } -> std::same_as<at::Tensor>;
};

/// Overlaps with the backward pass. Without it, a blocking all-reduce for each bucket. By its name
/// only, because what it returns may be incomplete behind a door; AsyncBackend asks for the form.
template <class B>
concept HasAllReduceAsync = requires {
    &B::all_reduce_async;
};

/// The backend of a group of these ranks. Without it, a model prepared for a group throws RT-C28.
template <class B>
concept HasGroups = requires(const B& backend, const std::shared_ptr<comm::Communicator>& group) {
    { backend.over(group) } -> std::same_as<B>;
};

/// One row of the table in docs/architecture.md.
struct Capability {
    std::string_view member;
    bool offered;
    std::string_view otherwise; ///< what happens without it
};

/// What a backend offers, in the order in which a run would use it.
template <Backend B>
[[nodiscard]] auto capabilities() {
    return std::array{
        Capability{"launched_ranks", CanBeLaunched<B>, "fit() trains in the process that calls it"},
        Capability{"start", CanStart<B>, "ranks are joined already"},
        Capability{"local_rank", KnowsLocalRank<B>, "the rank"},
        Capability{"local_size", KnowsLocalSize<B>, "the number of ranks"},
        Capability{"node_rank", KnowsNodeRank<B>, "0"},
        Capability{"device", HasDevice<B>, "the CPU"},
        Capability{"all_gather", CanAllGather<B>, "an all-reduce of zeros and one own row"},
        Capability{"reduce_scatter", CanReduceScatter<B>, "an all-reduce of a copy"},
        Capability{"barrier", HasBarrier<B>, "an all-gather of one byte"},
        Capability{"over", HasGroups<B>, "no models of a group of ranks"},
        Capability{"allocate_bucket", CanAllocateBuckets<B>, "gradients in ordinary memory"},
        Capability{"all_reduce_async", HasAllReduceAsync<B>, "no overlap with the backward pass"},
        Capability{"finish", CanFinish<B>, "a rank that throws reports only itself"},
        Capability{"rejoin", CanRejoin<B>, "a restart takes new processes"},
        Capability{"survives_deaths", can_survive_deaths<B>(), "a death ends all ranks"},
    };
}

} // namespace backend

namespace detail {

/// One sentence for each member that has a capability's name and not its form.
template <class B>
struct RequireCapabilities {
    static_assert(
        !requires { &B::finish; } || backend::CanFinish<B>,
        "rtrain: this backend's `finish` is not `std::vector<Outcome> finish(const "
        "Outcome&)` [RT-B6]");
    static_assert(
        !requires { &B::rejoin; } || backend::CanRejoin<B>,
        "rtrain: this backend's `rejoin` takes arguments; it is `void rejoin()` or "
        "`std::vector<int> rejoin()`, which returns the ranks that were cut out [RT-B7]");
    static_assert(
        !requires { &B::start; } || backend::CanStart<B>,
        "rtrain: this backend's `start` is not `void start(const ScalingConfig&)` "
        "[RT-B8]");
    static_assert(
        !requires { &B::allocate_bucket; } || backend::CanAllocateBuckets<B>,
        "rtrain: this backend's `allocate_bucket` is not `at::Tensor "
        "allocate_bucket(std::int64_t, const at::TensorOptions&)` [RT-B9]");
};

} // namespace detail
} // namespace rtrain
