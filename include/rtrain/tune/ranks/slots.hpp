// SPDX-License-Identifier: Apache-2.0
/// @file
/// Slots: rank 0 of a search in one mpirun sends trials to the other ranks, which run them
/// (tune/slot_agent.hpp), and answers their reports. No MPI here.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/process/os/machine.hpp>
#include <rtrain/tune/controller/trial_message.hpp>
#include <rtrain/tune/ranks/slot_link.hpp>
#include <rtrain/tune/ranks/slot_places.hpp>
#include <rtrain/tune/threads/trial.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

namespace rtrain::tune {

class Slots {
public:
    /// Throws SearchBroken [RT-U114], as all members do.
    explicit Slots(bool one_node) : listener_(std::in_place, one_node) {}

    /// The address for the other ranks.
    [[nodiscard]] std::string address() const { return listener_->address().text(); }

    /// Waits for the others; `machine`: that of this process.
    void accept(int others, const Machine& machine) {
        using Clock = std::chrono::steady_clock;
        ranks_.push_back({.rank = 0, .host = storage::host_name(), .machine = machine});
        const auto deadline = Clock::now() + internal::joining_limit;
        while (static_cast<int>(slots_.size()) < others) {
            const auto left =
                std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
            pollfd caller{listener_->descriptor(), POLLIN, 0};
            if (left <= 0) {
                throw internal::cannot_join(detail::concat(
                    "rank 0 has waited ", internal::joining_limit.count(), " s, and ",
                    slots_.size(), " of ", others,
                    " ranks have connected; allow TCP connections between the machines"));
            }
            if (::poll(&caller, 1, static_cast<int>(left)) > 0) {
                take(listener_->accept());
            }
        }
        listener_.reset();
        std::sort(ranks_.begin(), ranks_.end(),
                  [](const SlotRank& a, const SlotRank& b) { return a.rank < b.rank; });
    }

    /// Ranks of rank 0 and its slots, sorted. Call it after accept().
    [[nodiscard]] const std::vector<SlotRank>& ranks() const noexcept { return ranks_; }

    /// Runs a trial in its place's slot; used as a TrialFunction. Several threads may call it, each
    /// for a different slot.
    std::optional<double> run(Trial& trial) {
        internal::LineConnection& slot = slots_.at(trial.place().slot);
        begin(slot, trial);
        std::exception_ptr untaken; // such as no space left for a state
        for (;;) {
            const auto message = next(slot, trial);
            const auto kind = internal::kind_of(message);
            if (kind == MessageKind::report) {
                answer(slot, trial, message, untaken);
            } else if (kind == MessageKind::saved) {
                trial.saved(internal::saved_state_from(message));
            } else if (untaken) { // the slot has finished the trial
                std::rethrow_exception(untaken);
            } else if (kind == MessageKind::failed) {
                throw std::runtime_error(std::string(message.at("why").as_string()));
            } else {
                const auto* const value = message.if_contains("value");
                return value != nullptr ? json::number(*value) : std::nullopt;
            }
        }
    }

    /// Ends all slots; no more trials follow. Slots that are gone are ignored.
    void end(boost::json::object how) {
        how["kind"] = internal::message_names[MessageKind::end];
        for (auto& [rank, slot] : slots_) {
            (void)slot.send(how);
        }
        slots_.clear();
    }

private:
    using MessageKind = internal::MessageKind;

    /// Adds the connection as a slot. Rejects connections without the token, or silent for 5 s.
    void take(process::Descriptor socket) {
        constexpr std::chrono::seconds patience{5};
        constexpr std::size_t longest = 4096;
        const int number = socket.get();
        internal::limit_waits(number, patience);
        internal::LineConnection caller(std::move(socket));
        try {
            std::optional<boost::json::object> hello;
            while (!(hello = caller.take())) {
                if (caller.size() > longest || !caller.fill()) {
                    return;
                }
            }
            const std::string token(hello->at("token").as_string());
            if (!launch::control::equal_in_constant_time(token, listener_->address().token)) {
                return;
            }
            const int rank = hello->at("rank").to_number<int>();
            ranks_.push_back({.rank = rank,
                              .host = std::string(hello->at("host").as_string()),
                              .machine = {.cpus = hello->at("cpus").to_number<int>(),
                                          .gpus = hello->at("gpus").to_number<int>()}});
            internal::limit_waits(number, std::chrono::seconds(0));
            internal::watch_peer(number);
            slots_.insert_or_assign(rank, std::move(caller));
        } catch (const std::exception&) {
            return; // not a valid hello
        }
    }

    static void begin(internal::LineConnection& slot, const Trial& trial) {
        boost::json::object message{
            {"kind", internal::message_names[MessageKind::trial]},
            {"assignment", internal::to_json(trial.assignment())},
            {"gpus", boost::json::array(trial.gpus().begin(), trial.gpus().end())}};
        if (trial.state()) {
            message["bytes"] = trial.state()->size();
        }
        if (!slot.send(message) || (trial.state() && !slot.send_bytes(*trial.state()))) {
            throw lost(trial);
        }
    }

    static boost::json::object next(internal::LineConnection& slot, const Trial& trial) {
        for (;;) {
            if (auto message = slot.take()) {
                return *std::move(message);
            }
            if (!slot.fill()) {
                throw lost(trial);
            }
        }
    }

    /// An error in a report ends the trial, but not the connection to its slot.
    static void answer(internal::LineConnection& slot, Trial& trial,
                       const boost::json::object& report, std::exception_ptr& untaken) {
        bool goes_on = false;
        std::optional<std::string> state;
        Config metrics = report.at("metrics").as_object();
        const auto* const bytes = report.if_contains("bytes");
        if (bytes != nullptr && !(state = slot.take_bytes(bytes->to_number<std::size_t>()))) {
            throw lost(trial);
        }
        try {
            goes_on =
                state ? trial.report(std::move(metrics), *state) : trial.report(std::move(metrics));
        } catch (const std::exception&) {
            untaken = std::current_exception();
        }
        if (!slot.send(
                {{"kind", internal::message_names[MessageKind::verdict]}, {"goes_on", goes_on}})) {
            throw lost(trial);
        }
    }

    static SearchBroken lost(const Trial& trial) {
        return {"RT-U114",
                detail::concat(
                    "rank ", trial.place().slot, ", which ran trial ", trial.id(),
                    " of the search, is gone; run the same command again to resume every trial")};
    }

    std::optional<internal::SlotListener> listener_;
    std::vector<SlotRank> ranks_;
    std::map<int, internal::LineConnection> slots_; ///< by rank
};

} // namespace rtrain::tune
