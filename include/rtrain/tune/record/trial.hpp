// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrialRecord: the record of one trial in a search, and its JSON. Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/base/name_table.hpp>
#include <rtrain/config/run_info.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rtrain::tune {

/// The state of a trial.
enum class TrialState : unsigned char {
    pending,    ///< waits for a place
    running,    ///< has a place
    paused,     ///< by a scheduler; may continue
    terminated, ///< has ended, or was stopped by a scheduler
    errored     ///< has failed permanently
};

/// The record of a trial.
struct TrialRecord {
    std::string id{};        ///< unique in its search, for example "64aa7_00000"
    std::int64_t number = 0; ///< in the order in which trials were created, from 0
    std::string name{};      ///< for people, and for its directory
    Config config{};         ///< suggested by the searcher, or changed by a scheduler
    TrialState state = TrialState::pending;
    bool early = false;       ///< terminated by a scheduler
    std::int64_t reports = 0; ///< the training_iteration of its newest report; 0: none
    double time_s = 0;        ///< training time in seconds
    Config metrics{};         ///< the newest report's metrics
    std::string directory{};  ///< relative to the experiment's
    std::string checkpoint{}; ///< relative to its directory; empty: none
    std::string error{};      ///< why it failed
    int failures = 0;         ///< counted against max_failures
    double begun_s = 0;       ///< seconds since 1970; 0: not started
    double ended_s = 0;       ///< the same
    std::string donor{};      ///< trial whose state it took over last, under Pbt
};

namespace internal {

inline constexpr auto trial_state_names =
    rtrain::detail::name_table<TrialState>({{TrialState::pending, "PENDING"},
                                            {TrialState::running, "RUNNING"},
                                            {TrialState::paused, "PAUSED"},
                                            {TrialState::terminated, "TERMINATED"},
                                            {TrialState::errored, "ERROR"}});

} // namespace internal

/// "PENDING", "RUNNING", "PAUSED", "TERMINATED" or "ERROR", as Ray names them.
[[nodiscard]] constexpr std::string_view name_of(TrialState state) noexcept {
    return internal::trial_state_names[state];
}

/// True if it will not run any more.
[[nodiscard]] inline bool is_over(TrialState state) noexcept {
    return state == TrialState::terminated || state == TrialState::errored;
}

/// All fields as JSON.
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

/// Throws std::exception for anything that to_json() has not returned.
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
    const auto state = internal::trial_state_names.parse(saved.at("state").as_string());
    if (!state) {
        throw std::invalid_argument("unknown trial state");
    }
    trial.state = *state;
    return trial;
}

} // namespace rtrain::tune
