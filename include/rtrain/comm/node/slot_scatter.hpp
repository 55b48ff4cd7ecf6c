// SPDX-License-Identifier: Apache-2.0
/// @file
/// Slots of ranks on the CPU, two a rank: each rank writes a block for every rank into its slot,
/// and sums its own block over all slots. Within a node slots are memory that its ranks share.
/// Nodes exchange their sums as messages, optionally rounded to a 2-byte type. Only the slots ever
/// hold a whole.
#pragma once

#include <rtrain/comm/calls/calls.hpp>
#include <rtrain/comm/calls/messages.hpp>
#include <rtrain/comm/kernels/call.hpp>
#include <rtrain/comm/kernels/kernels.hpp>
#include <rtrain/comm/kernels/slices.hpp>
#include <rtrain/comm/memory/double_buffered_exchange.hpp>
#include <rtrain/comm/memory/shared_memory.hpp>
#include <rtrain/comm/node/node.hpp>
#include <rtrain/comm/node/slots.hpp>
#include <rtrain/comm/node/transport.hpp>
#include <rtrain/comm/world/group.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain::comm {

/// The ranks that share slots: those of this node, and those with this local rank on all nodes.
/// Without shared memory each rank is a separate node.
struct SlotRanks {
    Group* node = nullptr;   ///< null: this rank is alone on its node
    Group* across = nullptr; ///< null: there is one node, or this rank owns no block
    BlockOwners owners;

    [[nodiscard]] static SlotRanks of(Group& all, const Transport& links) {
        if (links.node() == nullptr) {
            return {nullptr, &all, {1, all.size(), 0, all.rank()}};
        }
        const Topology& places = links.places();
        const int node = links.across() != nullptr ? links.across()->rank() : 0;
        return {&links.node()->group(),
                links.across(),
                {places.slices(), places.nodes(), places.local_rank(), node}};
    }
};

class SlotScatter final : public Slots {
public:
    /// `slot_bytes`: a multiple of 64. `sent_as`: the type in which nodes send sums of float32 and
    /// float64, which are then added in float32 and rounded once more. *Collective*; its arguments
    /// outlive it. Throws CommError [RT-X12].
    SlotScatter(const SlotRanks& ranks, Group& all, Calls& calls, std::size_t slot_bytes,
                std::optional<at::ScalarType> sent_as)
        : ranks_(ranks), all_(all), calls_(calls), named_(calls.with_handle({})), sent_as_(sent_as),
          memory_(ranks.node != nullptr
                      ? share_memory(*ranks.node, bytes_for(ranks.node->size(), slot_bytes))
                      : SharedMemory::create(bytes_for(1, slot_bytes))),
          rounds_(memory_.data(), ranks.node != nullptr ? ranks.node->rank() : 0,
                  ranks.node != nullptr ? ranks.node->size() : 1, slot_bytes) {
        memory_.close_file();
    }

    [[nodiscard]] std::byte* slot() override {
        settle();
        finish(under_way_[(round_ + 1) % 2]);
        return rounds_.next_slot();
    }

    void publish(at::ScalarType type, std::int64_t block, const at::Tensor& to,
                 std::function<void()> then) override {
        Call call = named_;
        call.collective = Collective::reduce_scatter;
        call.type = type;
        call.elements = block * ranks_.owners.count();
        Round& round = under_way_[++round_ % 2];
        round.call = calls_.begin(call);
        round.to = to;
        round.then = std::move(then);
        round.block = block;
        round.is_open = true;
        if (ranks_.across != nullptr && block > 0) {
            reserve_exchange(round);
        }
        rounds_.publish(round.call);
    }

    void poll() override {
        if (current().is_open && rounds_.stages().poll()) {
            add_up(current());
        }
        for (Round& round : under_way_) {
            if (!round.is_open && round.exchange && round.exchange->poll()) {
                complete(round);
            }
        }
    }

    void wait() override {
        settle();
        finish(under_way_[0]);
        finish(under_way_[1]);
    }

private:
    [[nodiscard]] static std::size_t bytes_for(int ranks, std::size_t slot_bytes) {
        return DoubleBufferedExchange<Call>::bytes_for(ranks, slot_bytes);
    }

    struct Round {
        Call call;
        bool is_open = false; ///< published, but not summed yet
        std::int64_t block = 0;
        at::Tensor to;
        std::function<void()> then;
        /// Exchange between nodes, from this rank's slot or from `rounded`.
        std::optional<MessageReduceScatter> exchange;
        at::Tensor rounded;
    };

    [[nodiscard]] Round& current() { return under_way_[round_ % 2]; }

    /// In the slot of the next round: the blocks that this local rank sums, for all nodes.
    [[nodiscard]] std::byte* own_blocks(const Round& round) const {
        return rounds_.next_slot() + begin_of_own(round);
    }
    [[nodiscard]] std::size_t begin_of_own(const Round& round) const {
        return static_cast<std::size_t>(round.block * ranks_.owners.nodes * ranks_.owners.place) *
               c10::elementSize(round.call.type);
    }

    void reserve_exchange(Round& round) {
        const int nodes = ranks_.owners.nodes;
        const Slices blocks = Slices::equal(round.block, nodes);
        const auto type = round.call.type;
        if (is_rounded(type, sent_as_)) {
            round.rounded = at::empty({round.block * nodes}, *sent_as_);
            const int mine = ranks_.across->rank();
            round.exchange.emplace(*ranks_.across, round.rounded, blocks,
                                   round.rounded.narrow(0, blocks.begin(mine), round.block),
                                   Reduction{*sent_as_, ReduceOp::sum});
        } else {
            round.exchange.emplace(*ranks_.across, sums_of_node(round, own_blocks(round)), blocks,
                                   round.to, Reduction{round.to.scalar_type(), ReduceOp::sum});
        }
        round.exchange->reserve();
    }
    [[nodiscard]] at::Tensor sums_of_node(const Round& round, std::byte* memory) const {
        return at::from_blob(memory, {round.block * ranks_.owners.nodes}, round.to.options());
    }

    /// Before the next round, this one's slots must have been read: see rounds.hpp.
    void settle() {
        if (Round& round = current(); round.is_open) {
            if (!rounds_.stages().poll()) {
                calls_.wait(all_, rounds_.stages(), round.call);
            }
            add_up(round);
        }
    }

    void finish(Round& round) {
        if (round.exchange) {
            calls_.wait(all_, *round.exchange, round.call);
            complete(round);
        }
    }

    void complete(Round& round) {
        if (round.rounded.defined()) {
            round.to.copy_(round.exchange->slice(ranks_.across->rank()));
            round.rounded.reset();
        }
        round.exchange.reset();
        round.to.reset();
        if (const auto then = std::exchange(round.then, nullptr)) {
            then();
        }
    }

    void add_up(Round& round) {
        round.is_open = false;
        calls_.require_agreement(ranks_.node != nullptr ? *ranks_.node : all_, rounds_.stages());
        if (!ranks_.owners.owns() || round.block == 0) {
            return;
        }
        sources_.clear();
        for (int rank = 0; rank < rounds_.size(); ++rank) {
            sources_.push_back(rounds_.published_slot(rank) + begin_of_own(round));
        }
        // No other rank reads this local rank's blocks of this rank's slot, so that nodes may
        // exchange their sum from there.
        std::byte* const target =
            round.exchange
                ? const_cast<std::byte*>(sources_[static_cast<std::size_t>(rounds_.rank())])
                : bytes_of(round.to);
        const Reduction sum{round.call.type, ReduceOp::sum};
        sum.run({&target, 1}, sources_, round.block * ranks_.owners.nodes);
        if (round.exchange) {
            if (round.rounded.defined()) {
                round.rounded.copy_(sums_of_node(round, target));
            }
            round.exchange->begin();
        } else {
            complete(round);
        }
    }

    SlotRanks ranks_;
    Group& all_;
    Calls& calls_;
    Call named_;
    std::optional<at::ScalarType> sent_as_;
    SharedMemory memory_;
    DoubleBufferedExchange<Call> rounds_;
    std::uint64_t round_ = 0;
    std::array<Round, 2> under_way_; ///< the even and the odd one
    std::vector<const std::byte*> sources_;
};

} // namespace rtrain::comm
