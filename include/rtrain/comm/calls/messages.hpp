// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collectives over messages, for ranks that share no memory. Each is started, advances in poll(),
/// and never blocks by itself.
#pragma once

#include <rtrain/comm/kernels/kernels.hpp>
#include <rtrain/comm/kernels/slices.hpp>
#include <rtrain/comm/world/group.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace rtrain::comm {

/// Every rank sends a message to every other. `to(rank)` is the data sent to a rank, `from(rank)`
/// the buffer for the data received from it. Each begins with its neighbour, so that not all send
/// to the same rank simultaneously.
template <class From, class To>
void exchange(const Group& group, Requests& requests, int tag, From&& from, To&& to) {
    const int size = group.size();
    for (int step = 1; step < size; ++step) {
        const int peer = (group.rank() - step + size) % size;
        requests.receive(from(peer), peer, tag);
    }
    for (int step = 1; step < size; ++step) {
        const int peer = (group.rank() + step) % size;
        requests.send(to(peer), peer, tag);
    }
}

/// Sends every rank its slice and combines the slices that arrive for this rank, in the order of
/// ranks. Repeatable.
class MessageReduceScatter {
public:
    /// `elements`: one dimension, contiguous, with one slice for each rank. The result is written
    /// to `own`, which may be this rank's slice.
    MessageReduceScatter(Group& group, at::Tensor elements, const Slices& slices, at::Tensor own,
                         const Reduction& reduction)
        : group_(&group), elements_(std::move(elements)), slices_(slices), own_(std::move(own)),
          reduction_(reduction), requests_(group.requests()) {
        if (group.size() > 1) {
            incoming_ = at::empty({group.size(), slices.count(group.rank())}, elements_.options());
        }
    }

    /// Reserves its position in the order of collectives; begin() may be called later.
    void reserve() { tag_ = group_->next_tag(); }

    /// The elements must not be accessed until poll() returns true.
    void begin() {
        exchange(
            *group_, requests_, tag_, [this](int peer) { return incoming_.select(0, peer); },
            [this](int peer) { return slice(peer); });
        under_way_ = true;
    }

    [[nodiscard]] bool poll() {
        if (under_way_ && requests_.poll()) {
            reduce();
            under_way_ = false;
        }
        return !under_way_;
    }
    [[nodiscard]] std::vector<int> awaited() const { return requests_.awaited(); }

    [[nodiscard]] at::Tensor slice(int rank) const {
        return elements_.narrow(0, slices_.begin(rank), slices_.count(rank));
    }

private:
    void reduce() {
        std::vector<const std::byte*> sources;
        for (int rank = 0; rank < group_->size(); ++rank) {
            const at::Tensor part =
                rank == group_->rank() ? slice(rank) : incoming_.select(0, rank);
            sources.push_back(static_cast<const std::byte*>(part.const_data_ptr()));
        }
        auto* const target = static_cast<std::byte*>(own_.data_ptr());
        reduction_.run({&target, 1}, sources, slices_.count(group_->rank()));
    }

    Group* group_;
    at::Tensor elements_;
    Slices slices_;
    at::Tensor own_;
    Reduction reduction_;
    at::Tensor incoming_;
    Requests requests_;
    int tag_ = 0;
    bool under_way_ = false;
};

/// Repeatable all-reduce of a contiguous tensor: a reduce-scatter, then every rank sends its slice
/// to every other. The bytes on the wire are those of a ring, in two steps instead of 2(n-1).
class MessageAllReduce {
public:
    MessageAllReduce(Group& group, const at::Tensor& tensor, ReduceOp op, int divisor)
        : group_(&group), elements_(tensor.view({-1})),
          slices_(Slices::balanced(elements_.numel(), group.size())),
          scatter_(group, elements_, slices_,
                   elements_.narrow(0, slices_.begin(group.rank()), slices_.count(group.rank())),
                   {elements_.scalar_type(), op, divisor}),
          gather_(group.requests()) {}

    void reserve() {
        scatter_.reserve();
        gather_tag_ = group_->next_tag();
    }
    void begin() {
        scatter_.begin();
        phase_ = Phase::scatter;
    }
    void start() {
        reserve();
        begin();
    }

    /// True when the tensor holds the result.
    [[nodiscard]] bool poll() {
        if (phase_ == Phase::scatter && scatter_.poll()) {
            share();
            phase_ = Phase::gather;
        }
        if (phase_ == Phase::gather && gather_.poll()) {
            phase_ = Phase::done;
        }
        return phase_ == Phase::done;
    }
    [[nodiscard]] std::vector<int> awaited() const {
        return phase_ == Phase::scatter ? scatter_.awaited() : gather_.awaited();
    }

private:
    enum class Phase : unsigned char { scatter, gather, done };

    void share() {
        exchange(
            *group_, gather_, gather_tag_, [this](int peer) { return scatter_.slice(peer); },
            [this](int /*peer*/) { return scatter_.slice(group_->rank()); });
    }

    Group* group_;
    at::Tensor elements_;
    Slices slices_;
    MessageReduceScatter scatter_;
    Requests gather_;
    int gather_tag_ = 0;
    Phase phase_ = Phase::done;
};

/// Overwrites a contiguous tensor with that of `root`; a binomial tree.
class MessageBroadcast {
public:
    MessageBroadcast(Group& group, at::Tensor tensor, int root)
        : group_(&group), tensor_(std::move(tensor)), root_(root), tag_(group.next_tag()),
          from_parent_(group.requests()), to_children_(group.requests()) {
        if (relative() != 0) {
            from_parent_.receive(tensor_, absolute(relative() & (relative() - 1)), tag_);
        }
        (void)poll(); // the root sends now
    }

    [[nodiscard]] bool poll() {
        if (!received_ && from_parent_.poll()) {
            received_ = true;
            for (int bit = 1; bit < group_->size() && (relative() & bit) == 0; bit <<= 1) {
                if (const int child = relative() | bit; child < group_->size()) {
                    to_children_.send(tensor_, absolute(child), tag_);
                }
            }
        }
        return received_ && to_children_.poll();
    }

    /// The root has no parent to wait for, and may have returned long before the last rank has the
    /// data.
    [[nodiscard]] std::vector<int> awaited() const {
        return received_ ? to_children_.awaited() : from_parent_.awaited();
    }

private:
    /// Rank counted from the root: the parent of a rank lacks its lowest bit.
    [[nodiscard]] int relative() const {
        return (group_->rank() - root_ + group_->size()) % group_->size();
    }
    [[nodiscard]] int absolute(int relative) const { return (relative + root_) % group_->size(); }

    Group* group_;
    at::Tensor tensor_;
    int root_;
    int tag_;
    Requests from_parent_;
    Requests to_children_;
    bool received_ = false;
};

/// Fills the rows of `gathered`, shape (size, ...), contiguous; row rank() holds this rank's part.
class MessageAllGather {
public:
    MessageAllGather(Group& group, const at::Tensor& gathered)
        : MessageAllGather(group, gathered, group.next_tag()) {}
    /// `tag`: one that was reserved before.
    MessageAllGather(Group& group, const at::Tensor& gathered, int tag)
        : requests_(group.requests()) {
        exchange(
            group, requests_, tag, [&](int peer) { return gathered.select(0, peer); },
            [&](int /*peer*/) { return gathered.select(0, group.rank()); });
    }
    [[nodiscard]] bool poll() { return requests_.poll(); }
    [[nodiscard]] std::vector<int> awaited() const { return requests_.awaited(); }

private:
    Requests requests_;
};

} // namespace rtrain::comm
