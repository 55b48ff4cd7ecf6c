// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sends weights that owners have stepped to ranks that have separate copies: between nodes, and
/// within one where its ranks do not share the weights. Each byte enters a node once.
#pragma once

#include <rtrain/comm/communicator.hpp>
#include <rtrain/comm/kernels/slices.hpp>
#include <rtrain/comm/node/slots.hpp>
#include <rtrain/model/sharded/plan/shard_plan.hpp>
#include <rtrain/model/sharded/plan/unit_all_gather.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace rtrain::detail {

class WeightExchange {
    struct Leg;

public:
    /// `shares`: the ranks of a node share one copy.
    WeightExchange(comm::Communicator& ranks, bool shares)
        : ranks_(ranks), owners_(ranks.block_owners()),
          copies_within_node_(!shares && ranks.shares_memory()) {}

    /// Sends what owners have written to all other copies. *Collective.*
    void run(const std::vector<WeightCopy>& weights) const {
        for (const Leg& leg : legs_for(weights)) {
            at::Tensor rows = packed(leg);
            leg.is_across ? ranks_.gather_across(rows) : ranks_.gather_within(rows);
            unpack(leg, rows);
        }
    }

    /// The same, without blocking. Ranks start it in the same order.
    class UnderWay {
    public:
        /// Progresses without waiting; returns whether it is complete. Owners have written before
        /// the first call.
        [[nodiscard]] bool poll() {
            for (; next_ < legs_.size(); ++next_) {
                if (!rows_.defined()) {
                    rows_ = packed(legs_[next_]);
                    gathers_[next_].begin(rows_);
                }
                if (!gathers_[next_].poll()) {
                    return false;
                }
                unpack(legs_[next_], rows_);
                rows_.reset();
            }
            return true;
        }
        /// The ranks that the last poll() waited for.
        [[nodiscard]] std::vector<int> awaited() const {
            return next_ < legs_.size() ? gathers_[next_].awaited() : std::vector<int>();
        }

    private:
        friend class WeightExchange;
        UnderWay(comm::Communicator& ranks, std::vector<Leg> legs) : legs_(std::move(legs)) {
            for (const Leg& leg : legs_) {
                gathers_.push_back(leg.is_across ? ranks.gather_across_later()
                                                 : ranks.gather_within_later());
            }
        }

        std::vector<Leg> legs_;
        std::vector<comm::LaterGather> gathers_; ///< by leg
        std::size_t next_ = 0;
        at::Tensor rows_; ///< of the current leg
    };
    [[nodiscard]] UnderWay start(const std::vector<WeightCopy>& weights) const {
        return {ranks_, legs_for(weights)};
    }

private:
    /// The elements of each parameter that `count` owners from `first` on own; they are contiguous.
    struct Blocks {
        int first = 0;
        int count = 0;
    };
    /// One message to each other rank that takes part.
    struct Leg {
        std::vector<WeightCopy> weights = {};
        std::vector<Blocks> blocks = {}; ///< of each rank that takes part
        std::size_t mine = 0;            ///< this rank's index in `blocks`
        bool is_across = false;          ///< between nodes, else within this one
        std::size_t bytes = 0;
    };

    [[nodiscard]] std::vector<Leg> legs_for(const std::vector<WeightCopy>& weights) const {
        std::vector<Leg> legs;
        if (owners_.nodes > 1 && owners_.owns()) {
            Leg leg{.mine = static_cast<std::size_t>(owners_.node), .is_across = true};
            for (int node = 0; node < owners_.nodes; ++node) {
                leg.blocks.push_back({owners_.place * owners_.nodes + node, 1});
            }
            divide(weights, std::move(leg), legs);
        }
        if (copies_within_node_) { // also what other nodes have stepped
            Leg leg{.mine = static_cast<std::size_t>(owners_.place)};
            for (int place = 0; place < ranks_.local_size(); ++place) {
                leg.blocks.push_back({std::min(place, owners_.places) * owners_.nodes,
                                      place < owners_.places ? owners_.nodes : 0});
            }
            divide(weights, std::move(leg), legs);
        }
        return legs;
    }
    /// Splits a leg into messages of some parameters each.
    static void divide(const std::vector<WeightCopy>& weights, Leg leg, std::vector<Leg>& legs) {
        const int most =
            std::max_element(leg.blocks.begin(), leg.blocks.end(), [](auto& a, auto& b) {
                return a.count < b.count;
            })->count;
        for_each_weight_message(
            weights.size(), [&](std::size_t i) { return weights[i].row_bytes() * most; },
            [&](std::size_t begin, std::size_t end, std::int64_t bytes) {
                leg.weights.assign(weights.data() + begin, weights.data() + end);
                leg.bytes = static_cast<std::size_t>(bytes);
                legs.push_back(leg);
            });
    }

    /// A row for each rank, with this rank's filled in.
    [[nodiscard]] static at::Tensor packed(const Leg& leg) {
        at::Tensor rows = at::empty(
            {static_cast<std::int64_t>(leg.blocks.size()), static_cast<std::int64_t>(leg.bytes)},
            at::kByte);
        for_each_piece(leg.weights, leg.blocks[leg.mine], row(rows, leg, leg.mine),
                       [](std::byte* in_row, std::byte* in_copy, std::size_t count) {
                           std::memcpy(in_row, in_copy, count);
                       });
        return rows;
    }
    static void unpack(const Leg& leg, const at::Tensor& rows) {
        for (std::size_t rank = 0; rank < leg.blocks.size(); ++rank) {
            if (rank != leg.mine) {
                for_each_piece(leg.weights, leg.blocks[rank], row(rows, leg, rank),
                               [](const std::byte* in_row, std::byte* in_copy, std::size_t count) {
                                   std::memcpy(in_copy, in_row, count);
                               });
            }
        }
    }
    [[nodiscard]] static std::byte* row(const at::Tensor& rows, const Leg& leg, std::size_t rank) {
        return static_cast<std::byte*>(rows.data_ptr()) + rank * leg.bytes;
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
