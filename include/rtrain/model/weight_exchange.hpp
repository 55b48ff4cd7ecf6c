// SPDX-License-Identifier: Apache-2.0
/// @file
/// How weights that owners have stepped come to those who have copies of their own: between nodes,
/// and within one where its ranks do not share the weights. Each byte enters a node once.
#pragma once

#include <rtrain/comm/communicator.hpp>
#include <rtrain/comm/slices.hpp>
#include <rtrain/comm/slot_scatter.hpp>
#include <rtrain/model/shard_plan.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

namespace rtrain::detail {

/// A parameter where this rank has its copy.
struct WeightCopy {
    std::byte* memory = nullptr;
    comm::Slices slices; ///< one for each owner
    std::size_t element_bytes = 0;
};

class WeightExchange {
public:
    /// `shares`: the ranks of a node have one copy.
    WeightExchange(comm::Communicator& ranks, bool shares)
        : ranks_(ranks), owners_(ranks.block_owners()),
          copies_within_node_(!shares && ranks.shares_memory()) {}

    /// All copies get what owners have written into theirs. *Collective.*
    void run(const std::vector<WeightCopy>& weights) const {
        if (owners_.nodes > 1 && owners_.owns()) {
            std::vector<Blocks> of_nodes;
            for (int node = 0; node < owners_.nodes; ++node) {
                of_nodes.push_back({owners_.place * owners_.nodes + node, 1});
            }
            in_messages(weights, of_nodes, static_cast<std::size_t>(owners_.node),
                        [this](at::Tensor& rows) { ranks_.gather_across(rows); });
        }
        if (copies_within_node_) { // what other nodes have stepped, too
            std::vector<Blocks> of_places;
            for (int place = 0; place < ranks_.local_size(); ++place) {
                of_places.push_back({std::min(place, owners_.places) * owners_.nodes,
                                     place < owners_.places ? owners_.nodes : 0});
            }
            in_messages(weights, of_places, static_cast<std::size_t>(owners_.place),
                        [this](at::Tensor& rows) { ranks_.gather_within(rows); });
        }
    }

private:
    /// Of each parameter, what `count` owners from `first` on own; it lies side by side.
    struct Blocks {
        int first = 0;
        int count = 0;
    };
    using Gather = std::function<void(at::Tensor&)>;

    /// `blocks`: of each rank that takes part, `mine` of this one. Some parameters at a time.
    void in_messages(const std::vector<WeightCopy>& weights, const std::vector<Blocks>& blocks,
                     std::size_t mine, const Gather& gather) const {
        const int most = std::max_element(blocks.begin(), blocks.end(), [](auto& a, auto& b) {
                             return a.count < b.count;
                         })->count;
        for_each_weight_message(
            weights.size(),
            [&](std::size_t i) {
                return weights[i].slices.longest * most *
                       static_cast<std::int64_t>(weights[i].element_bytes);
            },
            [&](std::size_t begin, std::size_t end, std::int64_t bytes) {
                in_one_message({weights.data() + begin, end - begin}, blocks, mine, gather,
                               static_cast<std::size_t>(bytes));
            });
    }

    static void in_one_message(std::span<const WeightCopy> weights,
                               const std::vector<Blocks>& blocks, std::size_t mine,
                               const Gather& gather, std::size_t bytes) {
        at::Tensor rows =
            at::empty({static_cast<std::int64_t>(blocks.size()), static_cast<std::int64_t>(bytes)},
                      at::kByte);
        const auto row = [&](std::size_t rank) {
            return static_cast<std::byte*>(rows.data_ptr()) + rank * bytes;
        };
        for_each_piece(weights, blocks[mine], row(mine),
                       [](std::byte* in_row, std::byte* in_copy, std::size_t count) {
                           std::memcpy(in_row, in_copy, count);
                       });
        gather(rows);
        for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
            if (rank != mine) {
                for_each_piece(weights, blocks[rank], row(rank),
                               [](const std::byte* in_row, std::byte* in_copy, std::size_t count) {
                                   std::memcpy(in_copy, in_row, count);
                               });
            }
        }
    }

    template <class Copy>
    static void for_each_piece(std::span<const WeightCopy> weights, const Blocks& blocks,
                               std::byte* row, Copy&& copy) {
        for (const WeightCopy& weight : weights) {
            const std::int64_t begin = weight.slices.begin(blocks.first);
            const std::int64_t end = weight.slices.begin(blocks.first + blocks.count);
            const auto bytes_for = [&](std::int64_t elements) {
                return static_cast<std::size_t>(elements) * weight.element_bytes;
            };
            copy(row, weight.memory + bytes_for(begin), bytes_for(end - begin));
            row += bytes_for(end - begin);
        }
    }

    comm::Communicator& ranks_;
    comm::BlockOwners owners_;
    bool copies_within_node_;
};

} // namespace rtrain::detail
