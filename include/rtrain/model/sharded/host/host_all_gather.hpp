// SPDX-License-Identifier: Apache-2.0
/// @file
/// Units of weights that are gathered into slots on the CPU, by messages and through shared memory.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/comm/node/split_barriers.hpp>
#include <rtrain/comm/pending.hpp>
#include <rtrain/model/sharded/host/weight_exchange.hpp>
#include <rtrain/model/sharded/plan/unit_all_gather.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/os/owner.hpp>
#include <rtrain/process/status/step_clock.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::detail {

class HostAllGather final : public UnitAllGather {
public:
    /// `shares`: the ranks of a node share the slots. *Collective.* Throws CommError [RT-X12].
    HostAllGather(comm::Communicator& ranks, const WeightExchange& exchange, bool shares,
                  std::size_t slots, Weights weights)
        : ranks_(ranks), exchange_(exchange), weights_(std::move(weights)), slots_(slots),
          meetings_(ranks.allocate_meetings(slots, shares)) {}
    /// Completes transfers that were never used, or other ranks would match their messages wrongly.
    /// The other ranks complete them as well, unless they have failed.
    ~HostAllGather() override {
        try {
            if (owner_.is_this_process() && std::uncaught_exceptions() == 0 && !has_failed_) {
                Progress progress{*this};
                ranks_.wait(progress, "gathering weights");
            }
        } catch (const std::exception&) { // no rank waits for it
        }
    }

    void start(std::size_t unit, std::size_t slot, std::int64_t order) override {
        if (slots_[slot]) {
            (void)wait(slot);
        }
        const at::Tensor choice = at::tensor(
            {static_cast<std::int64_t>(unit), static_cast<std::int64_t>(slot), order}, at::kLong);
        slots_[slot].emplace(UnderWay{unit, ranks_.all_gather_async(choice),
                                      exchange_.start(weights_.copies(unit, slot))});
    }
    bool poll() override {
        bool all = true;
        for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
            all = poll_slot(slot) && all;
        }
        return all;
    }
    /// Advances what was started for a slot; true if it is complete.
    [[nodiscard]] bool poll_slot(std::size_t slot) {
        try {
            return !slots_[slot] || slots_[slot]->phase == Phase::there || advance(slot);
        } catch (...) {
            has_failed_ = true;
            throw;
        }
    }
    std::optional<bool> wait(std::size_t slot) override {
        const StepClock::In waiting(ProcessContext::current().clock, StepPart::communication);
        Progress progress{*this, slot};
        try {
            ranks_.wait(progress, "gathering weights");
        } catch (...) {
            has_failed_ = true;
            throw;
        }
        const bool same = slots_[slot]->same_order;
        slots_[slot].reset();
        return same;
    }
    [[nodiscard]] std::optional<bool> agree(std::int64_t /*order*/) override {
        return std::nullopt; // wait() returns it
    }

private:
    enum class Phase : unsigned char { choosing, exchanging, meeting, there };
    struct UnderWay {
        std::size_t unit = 0;
        comm::Pending<comm::MessageAllGather> choices;
        WeightExchange::UnderWay exchange;
        Phase phase = Phase::choosing;
        bool same_order = false;
    };

    /// Polls one slot, or all.
    struct Progress {
        HostAllGather& all;
        std::optional<std::size_t> slot = std::nullopt;

        bool poll() { return all.poll() || (slot && all.poll_slot(*slot)); }
        [[nodiscard]] std::vector<int> awaited() const {
            std::vector<int> ranks;
            for (std::size_t i = 0; i < all.slots_.size(); ++i) {
                if (!slot || i == *slot) {
                    const auto of_slot = all.awaited(i);
                    ranks.insert(ranks.end(), of_slot.begin(), of_slot.end());
                }
            }
            return ranks;
        }
    };
    /// Ranks that a slot waits for now.
    [[nodiscard]] std::vector<int> awaited(std::size_t slot) const {
        if (!slots_[slot]) {
            return {};
        }
        const UnderWay& one = *slots_[slot];
        return one.phase == Phase::choosing     ? one.choices.awaited()
               : one.phase == Phase::exchanging ? one.exchange.awaited()
               : one.phase == Phase::meeting    ? meetings_->awaited(slot)
                                                : std::vector<int>();
    }

    bool advance(std::size_t slot) {
        UnderWay& one = *slots_[slot];
        if (one.phase == Phase::choosing && one.choices.poll()) {
            one.same_order = require_agreement(one.choices.wait());
            weights_.write_own(one.unit, slot);
            one.phase = Phase::exchanging;
        }
        if (one.phase == Phase::exchanging && one.exchange.poll()) {
            meetings_->arrive(slot);
            one.phase = Phase::meeting;
        }
        if (one.phase == Phase::meeting && meetings_->poll(slot)) {
            one.phase = Phase::there;
        }
        return one.phase == Phase::there;
    }

    /// Every rank has reached this point for the same unit and slot: none uses the slot's contents.
    /// Returns whether all follow the same order.
    [[nodiscard]] bool require_agreement(const at::Tensor& all) const {
        constexpr std::int64_t fields = 3;
        const auto* const choice = all.const_data_ptr<std::int64_t>();
        bool same_order = true;
        for (std::int64_t rank = 1; rank < all.size(0); ++rank) {
            const std::int64_t* const theirs = choice + fields * rank;
            if (theirs[0] != choice[0]) {
                throw ModelError(
                    "RT-M49",
                    concat("ranks use the weights of a model in different orders: unit \"",
                           name_of(choice[0]), "\" is next on rank 0, but \"", name_of(theirs[0]),
                           "\" on rank ", rank,
                           "; all ranks must run the same layers, in training and in evaluation, "
                           "or prepare the model with level Shard::gradients"));
            }
            if (theirs[1] != choice[1]) {
                throw ModelError(
                    "RT-M49",
                    concat(
                        "ranks have used the weights of a model in different orders before unit \"",
                        name_of(choice[0]), "\": rank ", rank,
                        " drops a different unit for it than rank 0; all ranks must run the same "
                        "layers, and read weights together, or prepare the model with level "
                        "Shard::gradients"));
            }
            same_order = same_order && theirs[2] == choice[2];
        }
        return same_order;
    }
    [[nodiscard]] const std::string& name_of(std::int64_t unit) const {
        return weights_.name(static_cast<std::size_t>(unit));
    }

    comm::Communicator& ranks_;
    const WeightExchange& exchange_;
    Weights weights_;
    std::vector<std::optional<UnderWay>> slots_; ///< the transfer started into each
    std::unique_ptr<comm::SplitBarriers> meetings_;
    process::Owner owner_;
    bool has_failed_ = false;
};

} // namespace rtrain::detail
