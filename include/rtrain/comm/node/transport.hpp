// SPDX-License-Identifier: Apache-2.0
/// @file
/// Connections between the members of a communicator: through memory within nodes, by messages
/// between ranks with the same local rank. If a node cannot share memory, all ranks send messages.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/comm/calls/calls.hpp>
#include <rtrain/comm/calls/messages.hpp>
#include <rtrain/comm/kernels/call.hpp>
#include <rtrain/comm/kernels/kernels.hpp>
#include <rtrain/comm/kernels/slices.hpp>
#include <rtrain/comm/node/node.hpp>
#include <rtrain/comm/world/group.hpp>
#include <rtrain/comm/world/topology.hpp>
#include <rtrain/comm/world/world.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::comm {

[[nodiscard]] inline std::byte* bytes_of(const at::Tensor& tensor) {
    return static_cast<std::byte*>(tensor.data_ptr());
}

/// Broadcasts by messages within one group.
inline void broadcast_among(Group& group, Calls& calls, at::Tensor& buffer, int root,
                            const Call& call) {
    MessageBroadcast messages(group, buffer, root);
    calls.wait(group, messages, call);
}

class Transport {
public:
    /// Collective over all members; `all` and `calls` outlive this object. `node_of`: node of each
    /// member. Uses the group numbers `id + 1` and `id + 2`. `used`: the memory of earlier Links of
    /// the same ranks within this node; if none, it is created.
    Transport(Group& all, Calls& calls, const std::vector<int>& node_of, int id, SharedMemory used)
        : all_(all), calls_(calls), places_(all.members(), node_of, all.world().rank()) {
        if (places_.ranks_per_node_at_most() > 1) {
            share_nodes(id, std::move(used));
        }
    }
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;

    /// See Node::take_memory().
    [[nodiscard]] SharedMemory take_memory() noexcept {
        return node_ != nullptr ? node_->take_memory() : SharedMemory();
    }

    [[nodiscard]] const Topology& places() const noexcept { return places_; }
    /// Shared memory within this rank's node; null if all ranks send messages.
    [[nodiscard]] Node* node() const noexcept { return node_.get(); }
    /// The members with this local rank, one a node; null for a local rank that not all nodes have.
    [[nodiscard]] Group* across() const noexcept { return across_.get(); }
    [[nodiscard]] bool within_one_node() const noexcept {
        return node_ != nullptr && places_.nodes() == 1;
    }

    /// For a node() and several of them: each rank reduces a slice within its node, and then with
    /// the same slice of the other nodes.
    void all_reduce_across(const Call& call, at::Tensor& buffer, int divisor) {
        const Divisors divisors(call.type, divisor);
        const int place = places_.local_rank();
        const Slices slices = Slices::balanced(buffer.numel(), places_.slices());
        at::Tensor own = buffer.view({-1}).narrow(0, slices.begin(place), slices.count(place));
        node_->reduce_scatter(call, slices, bytes_of(buffer), bytes_of(own),
                              {call.type, call.op, divisors.here});
        if (across_ != nullptr) {
            MessageAllReduce messages(*across_, own, call.op, divisors.across);
            messages.start();
            calls_.wait(all_, messages, call);
        }
        node_->all_gather(call, slices, bytes_of(buffer));
    }

    /// For the same case: the root sends to its node, which sends to the first rank of each other
    /// node; those broadcast within their nodes.
    void broadcast_across(const Call& call, at::Tensor& buffer, int root) {
        const int root_node = places_.node_of(root);
        const bool at_root = root_node == places_.node();
        const auto within = [&](int from) {
            node_->broadcast(call, bytes_of(buffer), buffer.nbytes(), from);
        };
        if (at_root) {
            const auto& here = node_->group().members();
            within(static_cast<int>(std::find(here.begin(), here.end(), all_.world_rank(root)) -
                                    here.begin()));
        }
        if (places_.local_rank() == 0) {
            broadcast_among(*across_, calls_, buffer, root_node, call); // leaders, by node
        }
        if (!at_root) {
            within(0);
        }
    }

private:
    /// Takes effect only if all members can: they must choose alike.
    void share_nodes(int id, SharedMemory used) {
        const std::shared_ptr<World>& world = all_.shared_world();
        node_group_ = std::make_unique<Group>(world, places_.local_members(), id + 1);
        if (places_.nodes() > 1 && places_.local_rank() < places_.slices()) {
            across_ = std::make_unique<Group>(world, places_.cross_node_peers(), id + 2);
        }
        try {
            node_ = std::make_unique<Node>(*node_group_, calls_, std::move(used));
        } catch (const CommError& error) {
            console::warn("rank %d: %s; gradients travel as messages, which is slower",
                          world->rank(), error.what());
        }
        at::Tensor shared = at::zeros({all_.size()}, at::kByte);
        shared[all_.rank()] = node_ != nullptr ? 1 : 0;
        MessageAllGather messages(all_, shared);
        all_.wait(messages, "joining");
        if (shared.min().item<int>() == 0) {
            node_.reset();
        } else {
            calls_.share(*node_group_, node_->record());
        }
    }

    Group& all_;
    Calls& calls_;
    Topology places_;
    std::unique_ptr<Group> node_group_;
    std::unique_ptr<Node> node_;
    std::unique_ptr<Group> across_;
};

} // namespace rtrain::comm
