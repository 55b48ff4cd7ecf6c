// SPDX-License-Identifier: Apache-2.0
/// @file
/// Split barriers for the ranks of a node: each rank arrives without waiting, and polls later
/// whether all have arrived.
#pragma once

#include <rtrain/comm/memory/shared_memory.hpp>
#include <rtrain/comm/memory/stages.hpp>
#include <rtrain/comm/node/node.hpp>
#include <rtrain/comm/world/group.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rtrain::comm {

class SplitBarriers {
public:
    /// `node`: the ranks that meet, *collectively*; null: this one alone. Throws CommError
    /// [RT-X12].
    SplitBarriers(Group* node, std::size_t count) : node_(node) {
        if (node == nullptr) {
            return;
        }
        const std::size_t bytes = Place::bytes_for(node->size());
        memory_ = share_memory(*node, count * bytes);
        for (std::size_t place = 0; place < count; ++place) {
            places_.emplace_back(memory_.data() + place * bytes, node->rank(), node->size());
        }
    }

    /// Data that this rank wrote before is readable by all that have seen its arrival. A rank
    /// arrives again at a place only after all have arrived and it has seen that.
    void arrive(std::size_t place) {
        if (!places_.empty()) {
            places_[place].publish(0);
        }
    }
    /// True if all have arrived at a place; never blocks.
    [[nodiscard]] bool poll(std::size_t place) { return places_.empty() || places_[place].poll(); }
    /// Returns the ranks that have not arrived.
    [[nodiscard]] std::vector<int> awaited(std::size_t place) const {
        return places_.empty() ? std::vector<int>() : node_->world_ranks(places_[place].absent());
    }

private:
    using Place = Stages<std::uint64_t>;

    Group* node_;
    SharedMemory memory_;
    std::vector<Place> places_;
};

} // namespace rtrain::comm
