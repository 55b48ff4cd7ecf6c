// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrialRecord: what a search knows of one trial, and its JSON.
/// Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/config/run_info.hpp>

#include <boost/json/object.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rtrain::tune {

/// Where a trial stands.
enum class TrialState : unsigned char {
    pending,    ///< waits for a place
    running,    ///< has one
    paused,     ///< by a scheduler
    terminated, ///< has ended, or a scheduler has stopped it
    errored     ///< has failed for good
};

/// What a search knows of a trial.
struct TrialRecord {
    std::string id{};        ///< unique in its search, for example "64aa7_00000"
    std::int64_t number = 0; ///< in the order in which trials were made, from 0
    std::string name{};      ///< for people, and for its directory
    Config config{};         ///< that the searcher has suggested, or a scheduler has changed
    TrialState state = TrialState::pending; ///< where it stands
    bool early = false;                     ///< terminated: by a scheduler, not by itself
    std::int64_t reports = 0;               ///< its newest report's training_iteration; 0: none
    double time_s = 0;                      ///< that it has trained
    Config metrics{};                       ///< of its newest report
    std::string directory{};                ///< relative to the experiment's
    std::string checkpoint{};               ///< relative to its directory; empty: none
    std::string error{};                    ///< why it has failed
    int failures = 0;                       ///< that count against max_failures
    double begun_s = 0;                     ///< seconds since 1970; 0: not yet
    double ended_s = 0;                     ///< the same
    std::string donor{};                    ///< whose state it has taken over last, under Pbt
};

/// "PENDING", "RUNNING", "PAUSED", "TERMINATED" or "ERROR", as Ray names them.
[[nodiscard]] constexpr std::string_view name_of(TrialState state) noexcept {
    constexpr std::string_view names[] = {"PENDING", "RUNNING", "PAUSED", "TERMINATED", "ERROR"};
    return names[static_cast<std::size_t>(state)];
}

/// Whether it runs no more.
[[nodiscard]] inline bool is_over(TrialState state) noexcept {
    return state == TrialState::terminated || state == TrialState::errored;
}

/// Field by field.
[[nodiscard]] inline boost::json::object to_json(const TrialRecord& trial) {
    return {{"id", trial.id},
            {"number", trial.number},
            {"name", trial.name},
            {"config", trial.config},
            {"state", name_of(trial.state)},
            {"early", trial.early},
            {"reports", trial.reports},
            {"time_s", trial.time_s},
            {"metrics", trial.metrics},
            {"directory", trial.directory},
            {"checkpoint", trial.checkpoint},
            {"error", trial.error},
            {"failures", trial.failures},
            {"begun_s", trial.begun_s},
            {"ended_s", trial.ended_s},
            {"donor", trial.donor}};
}

/// Throws std::exception for anything but what to_json() has returned.
[[nodiscard]] inline TrialRecord trial_from_json(const boost::json::object& saved) {
    const auto text = [&](std::string_view name) {
        return std::string(saved.at(name).as_string());
    };
    const auto number = [&](std::string_view name) {
        return json::number(saved.at(name)).value_or(std::numeric_limits<double>::quiet_NaN());
    };
    TrialRecord trial{.id = text("id"),
                      .number = saved.at("number").to_number<std::int64_t>(),
                      .name = text("name"),
                      .config = saved.at("config").as_object(),
                      .early = saved.at("early").as_bool(),
                      .reports = saved.at("reports").to_number<std::int64_t>(),
                      .time_s = number("time_s"),
                      .metrics = saved.at("metrics").as_object(),
                      .directory = text("directory"),
                      .checkpoint = text("checkpoint"),
                      .error = text("error"),
                      .failures = saved.at("failures").to_number<int>(),
                      .begun_s = number("begun_s"),
                      .ended_s = number("ended_s"),
                      .donor = text("donor")};
    for (const TrialState state : {TrialState::pending, TrialState::running, TrialState::paused,
                                   TrialState::terminated, TrialState::errored}) {
        if (name_of(state) == saved.at("state").as_string()) {
            trial.state = state;
            return trial;
        }
    }
    throw std::invalid_argument("unknown state of a trial");
}

} // namespace rtrain::tune
