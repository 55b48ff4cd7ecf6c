// SPDX-License-Identifier: Apache-2.0
/// @file
/// A backend without its type: what the trainer, its run and prepared models are written against,
/// so that they are compiled once for all backends. backend/the_backend.hpp holds one.
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/comm/device_graph.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace rtrain {

struct ScalingConfig;
namespace comm {
class Communicator;
} // namespace comm

/// The collectives that a hook may call, on all ranks in the same order.
class HookRanks {
public:
    HookRanks() = default;
    HookRanks(const HookRanks&) = delete;
    HookRanks& operator=(const HookRanks&) = delete;
    virtual ~HookRanks() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    /// Overwrites the tensor with the reduction over ranks.
    virtual void all_reduce(at::Tensor& tensor, ReduceOp op) = 0;
    /// The tensors of all ranks, which have equal shapes, stacked: (size, ...).
    [[nodiscard]] virtual at::Tensor all_gather(const at::Tensor& tensor) = 0;
    virtual void broadcast(at::Tensor& tensor, int root) = 0;
};

namespace detail {

/// A collective on the same memory, again and again; it must not be touched from start() to wait().
class AnyCollective {
public:
    AnyCollective() = default;
    AnyCollective(const AnyCollective&) = delete;
    AnyCollective& operator=(const AnyCollective&) = delete;
    virtual ~AnyCollective() = default;

    virtual void start() = 0;
    /// Goes on with what has been started, without waiting.
    virtual void poll() = 0;
    virtual void wait() = 0;
    /// Behind wait(): whether the result is finite, if it has seen that on its way.
    [[nodiscard]] virtual std::optional<bool> finite() const { return std::nullopt; }
};

/// What a backend can do, each with the fallback that docs/architecture.md names.
class AnyBackend : public HookRanks {
public:
    /// Row rank() of the reduction of a tensor of shape (size, ...).
    [[nodiscard]] virtual at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op) = 0;
    virtual void barrier() = 0;

    /// `tensor` is contiguous and keeps its memory. Overlaps with computation where the backend
    /// can, else start() blocks. With `check_finite` it looks at results, where the backend can.
    [[nodiscard]] virtual std::unique_ptr<AnyCollective>
    make_reduction(at::Tensor& tensor, bool check_finite = false) = 0;
    /// Whether the next two are there, for tensors on device(). All that they are given is
    /// contiguous and keeps its memory. What the device is told to do after wait() comes behind
    /// them; the host does not wait.
    [[nodiscard]] virtual bool shards_on_device() const = 0;
    /// `row` gets this rank's row of the sum of `rows`, of shape (size, *row.sizes()).
    [[nodiscard]] virtual std::unique_ptr<AnyCollective> make_reduce_scatter(const at::Tensor& rows,
                                                                             at::Tensor& row) = 0;
    /// `rows` gets the `row` of each rank.
    [[nodiscard]] virtual std::unique_ptr<AnyCollective> make_all_gather(const at::Tensor& row,
                                                                         at::Tensor& rows) = 0;
    /// Zeroed memory for a bucket, where the backend reduces it best. *Collective.*
    [[nodiscard]] virtual at::Tensor make_bucket(std::int64_t elements,
                                                 const at::TensorOptions& type) = 0;

    [[nodiscard]] virtual int local_rank() const = 0;
    [[nodiscard]] virtual int local_size() const = 0;
    [[nodiscard]] virtual int node_rank() const = 0;
    /// Where this rank computes; empty for a backend that knows the CPU only.
    [[nodiscard]] virtual std::optional<at::Device> device() const = 0;

    /// Null for a backend that records nothing.
    [[nodiscard]] virtual std::unique_ptr<comm::DeviceGraph> make_graph() = 0;

    /// Only the ranks of a group, numbered as there. Throws ConfigError [RT-C28] when the backend
    /// has no groups.
    [[nodiscard]] virtual std::shared_ptr<AnyBackend>
    over(const std::shared_ptr<comm::Communicator>& group) const = 0;

    /// All collectives there are, on CPU tensors; null for a backend that has no communicator.
    [[nodiscard]] virtual comm::Communicator* communicator() const = 0;

    /// Whether a program started alone launches its ranks, and how many a launcher has started.
    [[nodiscard]] virtual bool can_be_launched() const = 0;
    [[nodiscard]] virtual std::optional<int> launched_ranks() const = 0;

    /// GPUs of this machine that ranks may take; 0 for a backend that does not count them.
    [[nodiscard]] virtual int local_devices() const = 0;

    /// Before start(): runs follow each other in these ranks.
    virtual void stay_joined() = 0;
    /// Joins the other ranks.
    virtual void start(const ScalingConfig& scaling) = 0;
    /// Exchanges how each rank ended; empty for a backend that cannot.
    [[nodiscard]] virtual std::optional<std::vector<Outcome>> finish(const Outcome& mine) = 0;
    [[nodiscard]] virtual bool can_rejoin() const = 0;
    /// After a failure: joins the others anew. Returns the ranks that were cut out.
    virtual std::vector<int> rejoin() = 0;
    /// Whether the program is compiled to go on after a rank has died, and whether this job can.
    [[nodiscard]] virtual bool can_survive_deaths() const = 0;
    [[nodiscard]] virtual bool survives_deaths() const = 0;
};

} // namespace detail
} // namespace rtrain
