// SPDX-License-Identifier: Apache-2.0
/// @file
/// Repeater: wraps another searcher and tries each of its configurations several times. Guide:
/// docs/tune.md. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/tune/search/searcher.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace rtrain::tune {

/// Each configuration goes to `repeat` trials, for noisy scores. The searcher sees them as one
/// trial, with the id of the first, whose score is the mean of the available ones; it has errored
/// when none has a score. With `set_index`, a configuration has "__trial_index__", from 0 to repeat
/// - 1. The last configuration may get fewer of the `num_samples` trials.
class Repeater {
public:
    /// Throws ConfigError (RT-U13) if `repeat` is less than 1.
    Repeater(AnySearcher searcher, std::int64_t repeat, bool set_index = false);

    void begin(const Space& space, const Goal& goal, std::int64_t num_samples);
    [[nodiscard]] Suggestion ask(const std::string& trial);
    /// Throws ConfigError (RT-U11) for a trial that is not running.
    void tell(const std::string& trial, std::optional<double> score, TrialEnd end);
    [[nodiscard]] boost::json::object save() const;
    void load(const boost::json::object& state);

private:
    /// The trials of one configuration.
    struct Group {
        Config config;
        std::int64_t begun = 0;
        std::int64_t ended = 0;
        std::int64_t scored = 0;
        double sum = 0;
    };

    AnySearcher searcher_;
    std::int64_t repeat_;
    bool set_index_;
    std::int64_t left_ = -1;                      ///< trials; -1: no limit
    std::string open_;                            ///< the group that is still incomplete
    std::map<std::string, Group> groups_;         ///< by the id of the first trial
    std::map<std::string, std::string> group_of_; ///< of running trials
};
static_assert(Searcher<Repeater>);

} // namespace rtrain::tune

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/search/repeater_definitions.hpp>
#endif
