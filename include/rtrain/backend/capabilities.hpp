// SPDX-License-Identifier: Apache-2.0
/// @file
/// Optional members of a backend: a concept for each, and what happens without it (capabilities()).
/// A member with such a name but a different signature would be silently ignored, so it is a
/// compile error.
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/comm/device/device_graph.hpp>

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

/// Number of ranks that a launcher has started; empty in a program started alone, which then
/// becomes the driver and launches them.
template <class B>
concept CanBeLaunched = requires {
    { B::launched_ranks() } -> std::same_as<std::optional<int>>;
};

/// Number of GPUs of this machine that ranks may use; called in the driver, before ranks exist.
template <class B>
concept CountsDevices = requires {
    { B::local_devices() } -> std::same_as<int>;
};

/// Called first in fit(): joins the other ranks, checks options.
template <class B>
concept CanStart = requires(B& backend, const ScalingConfig& scaling) {
    backend.start(scaling);
};

/// Called before start() if consecutive runs use these ranks: the next start() may then reuse what
/// the last finish() has left.
template <class B>
concept StaysJoined = requires(B& backend) {
    backend.stay_joined();
};

/// Called last: exchanges the outcome of each rank.
template <class B>
concept CanFinish = requires(B& backend, const Outcome& mine) {
    { backend.finish(mine) } -> std::convertible_to<std::vector<Outcome>>;
};

/// Reconnects to the other ranks after a failure that all processes have survived; may return the
/// ranks that were excluded.
template <class B>
concept CanRejoin = requires(B& backend) {
    backend.rejoin();
};

/// True if this job continues without ranks that have died; static: if any job of this program can.
template <class B>
concept CanSurviveDeaths = requires(const B& backend) {
    { B::can_survive_deaths() } -> std::same_as<bool>;
    { backend.survives_deaths() } -> std::same_as<bool>;
};

/// The result of B's can_survive_deaths(): true if ranks may continue after one has died.
template <class B>
[[nodiscard]] bool can_survive_deaths() {
    if constexpr (CanSurviveDeaths<B>) {
        return B::can_survive_deaths();
    } else {
        return false;
    }
}

/// This rank's number on its node.
template <class B>
concept KnowsLocalRank = requires(const B& backend) {
    { backend.local_rank() } -> std::same_as<int>;
};

/// The number of ranks on this node.
template <class B>
concept KnowsLocalSize = requires(const B& backend) {
    { backend.local_size() } -> std::same_as<int>;
};

/// The number of this node.
template <class B>
concept KnowsNodeRank = requires(const B& backend) {
    { backend.node_rank() } -> std::same_as<int>;
};

/// The device of models and batches; allows `use_gpu`.
template <class B>
concept HasDevice = requires(const B& backend) {
    { backend.device() } -> std::convertible_to<at::Device>;
};

/// Stacks the tensors of all ranks.
template <class B>
concept CanAllGather = requires(B& backend, const at::Tensor& tensor) {
    { backend.all_gather(tensor) } -> std::same_as<at::Tensor>;
};

/// Gathers tensors of one dimension and different numbers of elements, such as texts.
template <class B>
concept CanAllGatherParts = requires(B& backend, const at::Tensor& part) {
    { backend.all_gather_parts(part) } -> std::same_as<std::vector<at::Tensor>>;
};

/// Reduces rows and returns this rank's.
template <class B>
concept CanReduceScatter = requires(B& backend, const at::Tensor& tensor) {
    { backend.reduce_scatter(tensor, ReduceOp::sum) } -> std::same_as<at::Tensor>;
};

/// Waits for all ranks.
template <class B>
concept HasBarrier = requires(B& backend) {
    backend.barrier();
};

/// Memory for gradient buckets, where reducing is fastest.
template <class B>
concept CanAllocateBuckets = requires(B& backend, std::int64_t elements,
                                      const at::TensorOptions& type) {
    { backend.allocate_bucket(elements, type) } -> std::same_as<at::Tensor>;
};

/// Overlaps with the backward pass. Checked by name only, because its return type may be incomplete
/// behind a door; AsyncBackend checks the signature.
template <class B>
concept HasAllReduceAsync = requires {
    &B::all_reduce_async;
};

/// Collectives on rows of device tensors that overlap with the device's computation, for sharded
/// models. `row` is this rank's row of the sum of `rows`; `rows` are the `row` of all ranks.
template <class B>
concept CanShardOnDevice = HasDevice<B> &&
    requires(B& backend, const at::Tensor& from, at::Tensor& to) {
    backend.reduce_scatter_async(from, to, ReduceOp::sum).start();
    backend.reduce_scatter_async(from, to, ReduceOp::sum).poll();
    backend.reduce_scatter_async(from, to, ReduceOp::sum).wait();
    backend.all_gather_async(from, to).start();
    backend.all_gather_async(from, to).poll();
    backend.all_gather_async(from, to).wait();
};

/// Records the device work of a step, to replay it as a whole.
template <class B>
concept HasGraphs = HasDevice<B> && requires(B& backend) {
    { backend.make_graph() } -> std::same_as<std::unique_ptr<comm::DeviceGraph>>;
};

/// Has one of them, with any signature.
template <class B>
concept HasCollectivesOfRows = requires {
    &B::reduce_scatter_async;
}
|| requires {
    &B::all_gather_async;
};

/// The backend of a group of these ranks.
template <class B>
concept HasGroups = requires(const B& backend, const std::shared_ptr<comm::Communicator>& group) {
    { backend.over(group) } -> std::same_as<B>;
};

/// All collectives, on CPU tensors.
template <class B>
concept HasCommunicator = requires(const B& backend) {
    { backend.communicator() } -> std::same_as<comm::Communicator&>;
};

/// One member in the table of docs/architecture.md; tests/docs compares them.
struct Capability {
    std::string_view member;    ///< its name in the type
    bool offered;               ///< whether this backend has it
    std::string_view otherwise; ///< what happens without it
};

/// The capabilities of a backend, in the order in which a run would use them.
template <Backend B>
[[nodiscard]] auto capabilities() {
    return std::array{
        Capability{"launched_ranks", CanBeLaunched<B>, "fit() trains in this process"},
        Capability{"local_devices", CountsDevices<B>, "one rank when num_workers is unset"},
        Capability{"start", CanStart<B>, "ranks are joined already"},
        Capability{"stay_joined", StaysJoined<B>, "trials in used ranks reconnect"},
        Capability{"local_rank", KnowsLocalRank<B>, "all ranks are on one node"},
        Capability{"local_size", KnowsLocalSize<B>, "all ranks are on one node"},
        Capability{"node_rank", KnowsNodeRank<B>, "all ranks are on one node"},
        Capability{"device", HasDevice<B>, "the CPU"},
        Capability{"all_gather", CanAllGather<B>, "an all-reduce of zeros and one own row"},
        Capability{"all_gather_parts", CanAllGatherParts<B>, "an all-gather of padded parts"},
        Capability{"reduce_scatter", CanReduceScatter<B>, "an all-reduce of a copy"},
        Capability{"barrier", HasBarrier<B>, "an all-gather of one byte"},
        Capability{"over", HasGroups<B>, "a model prepared for a group throws RT-C28"},
        Capability{"communicator", HasCommunicator<B>, "ShardedOptions throws RT-C41"},
        Capability{"allocate_bucket", CanAllocateBuckets<B>, "ordinary memory"},
        Capability{"all_reduce_async", HasAllReduceAsync<B>,
                   "a blocking all-reduce for each bucket"},
        Capability{"reduce_scatter_async", CanShardOnDevice<B>,
                   "ShardedOptions on a device throws RT-C41"},
        Capability{"all_gather_async", CanShardOnDevice<B>,
                   "ShardedOptions on a device throws RT-C41"},
        Capability{"make_graph", HasGraphs<B>, "worker.capture() runs the step itself"},
        Capability{"finish", CanFinish<B>,
                   "a barrier on success; a rank that throws reports only itself, and others may "
                   "wait for it"},
        Capability{"rejoin", CanRejoin<B>, "a restart takes new processes"},
        Capability{"survives_deaths", can_survive_deaths<B>(), "a death ends all ranks"},
    };
}

} // namespace backend

namespace detail {

/// One static_assert for each member that has a capability's name but a different signature. None
/// for `over`: a type derived from one of ours inherits it, and it returns the base.
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
    static_assert(
        !requires { &B::launched_ranks; } || backend::CanBeLaunched<B>,
        "rtrain: this backend's `launched_ranks` is not `static std::optional<int> "
        "launched_ranks()` [RT-B12]");
    static_assert(
        !requires { &B::local_devices; } || backend::CountsDevices<B>,
        "rtrain: this backend's `local_devices` is not `static int local_devices()` [RT-B12]");
    static_assert(
        !requires { &B::stay_joined; } || backend::StaysJoined<B>,
        "rtrain: this backend's `stay_joined` is not `void stay_joined()` [RT-B12]");
    static_assert(
        !requires { &B::local_rank; } || backend::KnowsLocalRank<B>,
        "rtrain: this backend's `local_rank` is not `int local_rank() const` [RT-B12]");
    static_assert(
        !requires { &B::local_size; } || backend::KnowsLocalSize<B>,
        "rtrain: this backend's `local_size` is not `int local_size() const` [RT-B12]");
    static_assert(
        !requires { &B::node_rank; } || backend::KnowsNodeRank<B>,
        "rtrain: this backend's `node_rank` is not `int node_rank() const` [RT-B12]");
    static_assert(
        !requires { &B::make_graph; } || backend::HasGraphs<B>,
        "rtrain: this backend's `make_graph` is not `std::unique_ptr<rtrain::comm::DeviceGraph> "
        "make_graph()` [RT-B12]");
    static_assert(
        !requires { &B::device; } || backend::HasDevice<B>,
        "rtrain: this backend's `device` is not `at::Device device() const` [RT-B12]");
    static_assert(
        !requires { &B::all_gather; } || backend::CanAllGather<B>,
        "rtrain: this backend's `all_gather` is not `at::Tensor all_gather(const at::Tensor&)` "
        "[RT-B12]");
    static_assert(
        !requires { &B::all_gather_parts; } || backend::CanAllGatherParts<B>,
        "rtrain: this backend's `all_gather_parts` is not `std::vector<at::Tensor> "
        "all_gather_parts(const at::Tensor&)` [RT-B12]");
    static_assert(
        !requires { &B::reduce_scatter; } || backend::CanReduceScatter<B>,
        "rtrain: this backend's `reduce_scatter` is not `at::Tensor reduce_scatter(const "
        "at::Tensor&, ReduceOp)` [RT-B12]");
    static_assert(
        !requires { &B::barrier; } || backend::HasBarrier<B>,
        "rtrain: this backend's `barrier` is not `void barrier()` [RT-B12]");
    static_assert(
        !requires { &B::communicator; } || backend::HasCommunicator<B>,
        "rtrain: this backend's `communicator` is not `comm::Communicator& communicator() const` "
        "[RT-B12]");
    static_assert(
        !requires { &B::survives_deaths; } || backend::CanSurviveDeaths<B>,
        "rtrain: this backend's `survives_deaths` is not `bool survives_deaths() const` with "
        "`static bool can_survive_deaths()` [RT-B12]");
};

} // namespace detail
} // namespace rtrain
