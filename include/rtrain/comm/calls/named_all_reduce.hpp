// SPDX-License-Identifier: Apache-2.0
/// @file
/// An all-reduce over messages that identifies itself. Reductions of equal size look alike to MPI:
/// without a name, ranks that start them in different orders would sum unrelated data.
#pragma once

#include <rtrain/comm/calls/calls.hpp>
#include <rtrain/comm/calls/messages.hpp>
#include <rtrain/comm/kernels/call.hpp>
#include <rtrain/comm/world/group.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace rtrain::comm {

/// A MessageAllReduce whose ranks send each other the call, a few bytes, ahead of the data. poll()
/// throws CommError [RT-X10] if another rank's call differs.
class NamedAllReduce {
public:
    NamedAllReduce(Group& group, const Calls& calls, const at::Tensor& tensor, ReduceOp op,
                   int divisor)
        : group_(&group), calls_(&calls), sum_(group, tensor, op, divisor) {
        const at::Tensor rows =
            at::empty({group.size(), static_cast<std::int64_t>(sizeof(Call))}, at::kByte);
        for (int peer = 0; peer < group.size(); ++peer) {
            peers_.push_back({.row = rows[peer], .requests = group.requests()});
        }
    }

    /// Reserves its position in the order of collectives; begin() may be called later.
    void reserve() {
        tag_ = group_->next_tag();
        sum_.reserve();
    }
    void begin(const Call& call) {
        call_ = call;
        const int mine = group_->rank();
        std::memcpy(row_of(mine).data_ptr(), &call, sizeof call);
        for (int peer = 0; peer < group_->size(); ++peer) {
            if (peer != mine) {
                Peer& other = peers_[static_cast<std::size_t>(peer)];
                other.agrees = false;
                other.requests.receive(other.row, peer, tag_);
                other.requests.send(row_of(mine), peer, tag_);
            }
        }
        sum_.begin();
    }
    void start(const Call& call) {
        reserve();
        begin(call);
    }

    /// True when the tensor holds the result.
    [[nodiscard]] bool poll() {
        const bool agreed = poll_calls();
        try {
            return sum_.poll() && agreed;
        } catch (const CommError&) { // a message of a different size; its call arrived earlier
            (void)poll_calls();
            throw;
        }
    }
    [[nodiscard]] std::vector<int> awaited() const {
        std::vector<int> ranks = sum_.awaited();
        for (const Peer& peer : peers_) {
            const std::vector<int> calls = peer.requests.awaited();
            ranks.insert(ranks.end(), calls.begin(), calls.end());
        }
        return ranks;
    }

private:
    struct Peer {
        at::Tensor row; ///< its call
        Requests requests;
        bool agrees = true;
    };

    [[nodiscard]] const at::Tensor& row_of(int rank) const {
        return peers_[static_cast<std::size_t>(rank)].row;
    }

    /// Compares the calls that have arrived.
    [[nodiscard]] bool poll_calls() {
        bool all = true;
        for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
            Peer& other = peers_[peer];
            if (!other.agrees && other.requests.poll()) {
                Call theirs;
                std::memcpy(&theirs, other.row.const_data_ptr(), sizeof theirs);
                if (!(theirs == call_)) {
                    calls_->throw_different(group_->world_rank(group_->rank()), call_,
                                            group_->world_rank(static_cast<int>(peer)), theirs);
                }
                other.agrees = true;
            }
            all = all && other.agrees;
        }
        return all;
    }

    Group* group_;
    const Calls* calls_;
    MessageAllReduce sum_;
    std::vector<Peer> peers_;
    Call call_{};
    int tag_ = 0;
};

} // namespace rtrain::comm
