// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrialWorker: a rank other than 0 of a search in one mpirun. It runs the trials that rank 0
/// sends, one after the other (tune/ranks/slots.hpp). No MPI here.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/process/os/machine.hpp>
#include <rtrain/tune/controller/trial_message.hpp>
#include <rtrain/tune/ranks/slot_link.hpp>
#include <rtrain/tune/resources/resources.hpp>
#include <rtrain/tune/threads/function_runner.hpp>
#include <rtrain/tune/threads/trial.hpp>

#include <boost/json/object.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::tune {

class TrialWorker {
public:
    /// `address`: from Slots::address(). Throws SearchBroken [RT-U114], as serve() does.
    TrialWorker(const std::string& address, int rank, const Machine& machine)
        : rank_(rank), search_(internal::connect_to_slots(internal::SlotAddress::from(address))) {
        say({{"kind", internal::message_names[internal::MessageKind::hello]},
             {"token", internal::SlotAddress::from(address).token},
             {"rank", rank},
             {"host", storage::host_name()},
             {"cpus", machine.cpus},
             {"gpus", machine.gpus}});
    }

    /// Runs trials until the search is over; returns the argument of Slots::end().
    boost::json::object serve(const TrialFunction& function) {
        for (;;) {
            boost::json::object message = hear();
            if (internal::kind_of(message) == internal::MessageKind::end) {
                return message;
            }
            run(message, function);
        }
    }

private:
    void run(const boost::json::object& message, const TrialFunction& function) {
        auto state = std::make_shared<std::optional<std::string>>();
        if (const auto* const bytes = message.if_contains("bytes")) {
            *state = search_.take_bytes(bytes->to_number<std::size_t>());
            if (!*state) {
                throw lost();
            }
        }
        Place place{.slot = rank_};
        for (const auto& gpu : message.at("gpus").as_array()) {
            place.gpus.push_back(gpu.to_number<int>());
        }
        const auto report = [this](Config metrics, std::optional<std::string_view> saved) {
            return ask(std::move(metrics), saved);
        };
        const auto saved = [this](const SavedState& newest) {
            say(internal::saved_message(newest));
        };
        Trial trial(internal::assignment_from(message.at("assignment").as_object()), place,
                    std::move(state), report, saved);
        boost::json::object ended{
            {"kind", internal::message_names[internal::MessageKind::returned]}};
        try {
            if (const auto value = function(trial, trial.config())) {
                ended["value"] = *value;
            }
        } catch (const std::exception& error) {
            ended = {{"kind", internal::message_names[internal::MessageKind::failed]},
                     {"why", error.what()}};
        } catch (...) {
            ended = {{"kind", internal::message_names[internal::MessageKind::failed]},
                     {"why", rtrain::detail::thrown_object()}};
        }
        say(ended); // throws if rank 0 is gone, even if the function has caught that
    }

    bool ask(Config metrics, std::optional<std::string_view> state) {
        boost::json::object report{{"kind", internal::message_names[internal::MessageKind::report]},
                                   {"metrics", std::move(metrics)}};
        if (state) {
            report["bytes"] = state->size();
        }
        say(report);
        if (state && !search_.send_bytes(*state)) {
            throw lost();
        }
        return hear().at("goes_on").as_bool();
    }

    void say(const boost::json::object& message) {
        if (is_lost_ || !search_.send(message)) {
            throw lost();
        }
    }
    boost::json::object hear() {
        for (;;) {
            if (auto message = search_.take()) {
                return *std::move(message);
            }
            if (!search_.fill()) {
                throw lost();
            }
        }
    }

    SearchBroken lost() {
        is_lost_ = true;
        return {"RT-U114",
                detail::concat("rank 0, which leads the search, is gone, as seen by rank ", rank_,
                               "; run the same command again to resume every trial")};
    }

    int rank_;
    internal::LineConnection search_;
    bool is_lost_ = false;
};

} // namespace rtrain::tune
