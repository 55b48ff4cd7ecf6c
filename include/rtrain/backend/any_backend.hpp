// SPDX-License-Identifier: Apache-2.0
/// @file
/// A type-erased backend. The trainer, its run and prepared models use it, so that they are
/// compiled once for all backends. backend/the_backend.hpp implements it.
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/comm/device/device_graph.hpp>
#include <rtrain/comm/kernels/slices.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace rtrain {

struct ScalingConfig;
namespace comm {
class BucketPieces;
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
    /// Returns the tensors of all ranks, which have equal shapes, stacked: (size, ...).
    [[nodiscard]] virtual at::Tensor all_gather(const at::Tensor& tensor) = 0;
    virtual void broadcast(at::Tensor& tensor, int root) = 0;
    /// Returns the tensors of all ranks, by rank: of one dimension and equal type, with different
    /// numbers of elements.
    [[nodiscard]] virtual std::vector<at::Tensor> all_gather_parts(const at::Tensor& part) {
        const at::Tensor lengths =
            all_gather(part.new_full({1}, part.numel(), at::kLong)).view(-1).cpu();
        const at::Tensor padded = part.new_zeros(lengths.max().item<std::int64_t>());
        padded.narrow(0, 0, part.numel()).copy_(part);
        const at::Tensor rows = all_gather(padded);
        std::vector<at::Tensor> parts;
        for (int rank = 0; rank < size(); ++rank) {
            parts.push_back(rows[rank].narrow(0, 0, lengths[rank].item<std::int64_t>()));
        }
        return parts;
    }
};

namespace detail {

/// A repeatable collective on fixed memory, which must not be accessed from start() to wait().
class AnyCollective {
public:
    AnyCollective() = default;
    AnyCollective(const AnyCollective&) = delete;
    AnyCollective& operator=(const AnyCollective&) = delete;
    virtual ~AnyCollective() = default;

    virtual void start() = 0;
    /// Advances a started collective without blocking.
    virtual void poll() = 0;
    virtual void wait() = 0;
    /// After wait(): true if the result is finite; empty if that was not checked.
    [[nodiscard]] virtual std::optional<bool> finite() const { return std::nullopt; }
    /// Gives ranks a second memory for `pieces` of the tensor, where start() may find them; null if
    /// the backend cannot. *Collective.*
    [[nodiscard]] virtual std::shared_ptr<comm::BucketPieces>
    make_pieces(std::vector<comm::Piece> /*pieces*/) {
        return nullptr;
    }
};

/// The capabilities of a backend, each with the fallback listed in docs/architecture.md.
class AnyBackend : public HookRanks {
public:
    /// Returns row rank() of the reduction of a tensor of shape (size, ...).
    [[nodiscard]] virtual at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op) = 0;
    virtual void barrier() = 0;

    /// `tensor` is contiguous and keeps its memory. Overlaps with computation if the backend can,
    /// else start() blocks. `check_finite`: check whether results are finite, if the backend can.
    [[nodiscard]] virtual std::unique_ptr<AnyCollective>
    make_reduction(at::Tensor& tensor, bool check_finite = false) = 0;
    /// True if the next two are available for tensors on device(). Their arguments are contiguous
    /// and keep their memory. Device work enqueued after wait() runs after them; the host does not
    /// block.
    [[nodiscard]] virtual bool shards_on_device() const = 0;
    /// `row` receives this rank's row of the sum of `rows`, of shape (size, *row.sizes()).
    [[nodiscard]] virtual std::unique_ptr<AnyCollective> make_reduce_scatter(const at::Tensor& rows,
                                                                             at::Tensor& row) = 0;
    /// `rows` receives the `row` of each rank.
    [[nodiscard]] virtual std::unique_ptr<AnyCollective> make_all_gather(const at::Tensor& row,
                                                                         at::Tensor& rows) = 0;
    /// Returns zeroed memory for a bucket, where the backend reduces it fastest. *Collective.*
    [[nodiscard]] virtual at::Tensor make_bucket(std::int64_t elements,
                                                 const at::TensorOptions& type) = 0;

    [[nodiscard]] virtual int local_rank() const = 0;
    [[nodiscard]] virtual int local_size() const = 0;
    [[nodiscard]] virtual int node_rank() const = 0;
    /// The device of this rank; empty for a backend that supports only the CPU.
    [[nodiscard]] virtual std::optional<at::Device> device() const = 0;

    /// Null for a backend that cannot record.
    [[nodiscard]] virtual std::unique_ptr<comm::DeviceGraph> make_graph() = 0;

    /// Returns a backend of only the ranks of a group, with the group's numbering. Throws
    /// ConfigError [RT-C28] if the backend has no groups.
    [[nodiscard]] virtual std::shared_ptr<AnyBackend>
    over(const std::shared_ptr<comm::Communicator>& group) const = 0;

    /// All collectives, on CPU tensors; null for a backend without a communicator.
    [[nodiscard]] virtual comm::Communicator* communicator() const = 0;

    /// True if a program started alone launches its ranks; and the number of ranks that a launcher
    /// has started.
    [[nodiscard]] virtual bool can_be_launched() const = 0;
    [[nodiscard]] virtual std::optional<int> launched_ranks() const = 0;

    /// Number of GPUs of this machine that ranks may use; 0 for a backend that does not count them.
    [[nodiscard]] virtual int local_devices() const = 0;

    /// Called before start() if consecutive runs use these ranks.
    virtual void stay_joined() = 0;
    /// Joins the other ranks.
    virtual void start(const ScalingConfig& scaling) = 0;
    /// Exchanges the outcome of each rank; empty for a backend that cannot.
    [[nodiscard]] virtual std::optional<std::vector<Outcome>> finish(const Outcome& mine) = 0;
    [[nodiscard]] virtual bool can_rejoin() const = 0;
    /// After a failure: reconnects to the other ranks. Returns the ranks that were excluded.
    virtual std::vector<int> rejoin() = 0;
    /// True if the program is compiled to continue after a rank has died; and true if this job can.
    [[nodiscard]] virtual bool can_survive_deaths() const = 0;
    [[nodiscard]] virtual bool survives_deaths() const = 0;
};

} // namespace detail
} // namespace rtrain
