// SPDX-License-Identifier: Apache-2.0
/// @file
/// Handles for asynchronous collectives.
#pragma once

#include <rtrain/comm/calls/calls.hpp>
#include <rtrain/comm/calls/messages.hpp>
#include <rtrain/comm/calls/named_all_reduce.hpp>
#include <rtrain/comm/kernels/call.hpp>
#include <rtrain/comm/kernels/exact_sum.hpp>
#include <rtrain/comm/node/bucket.hpp>
#include <rtrain/comm/world/group.hpp>

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::comm {

/// An asynchronous collective. It advances in poll() and wait(), not by itself, and other ranks may
/// wait for that: ranks wait for the operations of one communicator in the same order, or poll the
/// others meanwhile. The communicator must outlive it.
template <class Operation>
class Pending {
public:
    /// `calls`: where this one is recorded; null for messages between two ranks.
    Pending(Group& group, Calls* calls, const char* what, at::Tensor result, Operation operation)
        : group_(&group), calls_(calls), what_(what), result_(std::move(result)),
          operation_(std::move(operation)) {}

    /// wait() converts the result to `type`, from which exact::widened() converted the argument.
    void narrow_to(at::ScalarType type) { narrowed_ = type; }

    /// Advances without blocking; true if complete.
    bool poll() { return operation_.poll(); }
    /// Returns the ranks that it waits for.
    [[nodiscard]] std::vector<int> awaited() const { return operation_.awaited(); }
    /// Waits for the result. Throws as the blocking collective does.
    at::Tensor wait() {
        group_->wait(operation_, what_);
        if (calls_ != nullptr) {
            calls_->poll(); // messages of a different call may have matched this one
        }
        if (narrowed_) {
            const at::ScalarType type = *std::exchange(narrowed_, std::nullopt);
            result_ = exact::narrowed(result_, type, group_->size());
        }
        return result_;
    }

private:
    Group* group_;
    Calls* calls_;
    const char* what_;
    at::Tensor result_;
    Operation operation_;
    std::optional<at::ScalarType> narrowed_;
};

/// An all-gather that reserves its position in the order of collectives now, and begins later: see
/// MessageAllGather.
class LaterGather {
public:
    explicit LaterGather(Group& group) : group_(&group), tag_(group.next_tag()) {}

    /// The rows must not be accessed until poll() returns true.
    void begin(const at::Tensor& rows) { messages_.emplace(*group_, rows, tag_); }
    /// Called after begin(); never blocks.
    [[nodiscard]] bool poll() { return messages_->poll(); }
    [[nodiscard]] std::vector<int> awaited() const { return messages_->awaited(); }

private:
    Group* group_;
    int tag_;
    std::optional<MessageAllGather> messages_;
};

/// A sum of integers, computed in `wide`.
struct WideSum {
    at::Tensor tensor = {};
    at::Tensor wide = {};
    bool is_under_way = false;
};

/// A repeatable all-reduce of one tensor: start(), then poll() any number of times, then wait(). In
/// place for tensors in memory from allocate_bucket().
class AllReduce {
public:
    void start() {
        if (!poll()) {
            wait(); // an exception left it in flight, on all ranks or else they learn of it here
        }
        call_ = calls_->begin(call_);
        if (integers_.wide.defined()) {
            integers_.wide.copy_(exact::widened(integers_.tensor));
            integers_.is_under_way = true;
        }
        std::visit([&](auto& operation) { operation.start(call_); }, operation_);
    }
    bool poll() {
        return std::visit([](auto& operation) { return operation.poll(); }, operation_);
    }
    void wait() {
        std::visit([this](auto& operation) { calls_->wait(*group_, operation, call_); },
                   operation_);
        if (std::exchange(integers_.is_under_way, false)) {
            integers_.tensor.copy_(
                exact::narrowed(integers_.wide, integers_.tensor.scalar_type(), group_->size()));
        }
    }

    /// Enables finite(); call it on all ranks, before start().
    void check_finite() {
        if (auto* const bucket = std::get_if<BucketAllReduce>(&operation_)) {
            bucket->check_finite();
        }
    }
    /// True if all of the result is finite, where that was cheap to determine: in memory from
    /// allocate_bucket(), after wait(), if enabled. The same on all ranks.
    [[nodiscard]] std::optional<bool> finite() const {
        const auto* const bucket = std::get_if<BucketAllReduce>(&operation_);
        return bucket != nullptr ? bucket->finite() : std::nullopt;
    }

    /// Gives each rank a second memory for pieces of a float32 tensor in memory from
    /// allocate_bucket(), where start() may find them; null where reductions are not within one
    /// node. *Collective.* Throws CommError [RT-X12].
    [[nodiscard]] std::shared_ptr<BucketPieces> make_pieces(std::vector<Piece> pieces) {
        auto* const bucket = std::get_if<BucketAllReduce>(&operation_);
        return bucket != nullptr ? bucket->make_pieces(std::move(pieces)) : nullptr;
    }

private:
    friend class Communicator;
    using Operation = std::variant<NamedAllReduce, BucketAllReduce>;
    AllReduce(Group& group, Calls& calls, const Call& call, Operation operation,
              WideSum integers = {})
        : group_(&group), calls_(&calls), call_(call), operation_(std::move(operation)),
          integers_(std::move(integers)) {}

    Group* group_;
    Calls* calls_;
    Call call_;
    Operation operation_;
    WideSum integers_;
};

} // namespace rtrain::comm
