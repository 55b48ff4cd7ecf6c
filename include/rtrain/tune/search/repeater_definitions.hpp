// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door repeater.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/tune/search/plan.hpp>
#include <rtrain/tune/search/repeater.hpp>

#include <cmath>

namespace rtrain::tune {

RTRAIN_DOOR Repeater::Repeater(AnySearcher searcher, std::int64_t repeat, bool set_index)
    : searcher_(std::move(searcher)), repeat_(repeat), set_index_(set_index) {
    if (repeat < 1) {
        throw ConfigError("RT-U13",
                          detail::concat("Repeater: repeat is ", repeat, "; expected at least 1"));
    }
}

RTRAIN_DOOR void Repeater::begin(const Space& space, const Goal& goal, std::int64_t num_samples) {
    left_ = num_samples;
    searcher_.begin(space, goal,
                    num_samples > 0 ? (num_samples + repeat_ - 1) / repeat_ : num_samples);
}

RTRAIN_DOOR Suggestion Repeater::ask(const std::string& trial) {
    if (left_ == 0) {
        return Exhausted{};
    }
    if (open_.empty()) {
        Suggestion suggestion = searcher_.ask(trial);
        if (!std::holds_alternative<Config>(suggestion)) {
            return suggestion;
        }
        open_ = trial;
        groups_[trial].config = std::get<Config>(std::move(suggestion));
    }
    Group& group = groups_.at(open_);
    Config config = group.config;
    if (set_index_) {
        config["__trial_index__"] = group.begun;
    }
    ++group.begun;
    left_ -= left_ > 0 ? 1 : 0;
    group_of_[trial] = open_;
    if (group.begun == repeat_ || left_ == 0) {
        open_.clear();
    }
    return config;
}

RTRAIN_DOOR void Repeater::tell(const std::string& trial, std::optional<double> score,
                                TrialEnd end) {
    const auto found = group_of_.find(trial);
    if (found == group_of_.end()) {
        throw ConfigError(
            "RT-U11",
            detail::concat(
                "the searcher got a result for trial \"", trial,
                "\", which is not running; call ask() first, and end each trial only once"));
    }
    const std::string first = found->second;
    group_of_.erase(found);
    Group& group = groups_.at(first);
    ++group.ended;
    if (score && !std::isnan(*score) && end != TrialEnd::errored) {
        ++group.scored;
        group.sum += *score;
    }
    if (group.ended < group.begun || open_ == first) {
        return;
    }
    if (group.scored > 0) {
        searcher_.tell(first, group.sum / static_cast<double>(group.scored), TrialEnd::completed);
    } else {
        searcher_.tell(first, std::nullopt, TrialEnd::errored);
    }
    groups_.erase(first);
}

RTRAIN_DOOR boost::json::object Repeater::save() const {
    boost::json::object groups;
    for (const auto& [first, group] : groups_) {
        groups[first] = boost::json::array{group.config, group.begun, group.ended, group.scored,
                                           json::finite(group.sum)};
    }
    boost::json::object trials;
    for (const auto& [trial, first] : group_of_) {
        trials[trial] = first;
    }
    return {{"searcher", searcher_.save()},
            {"left", left_},
            {"open", open_},
            {"groups", std::move(groups)},
            {"trials", std::move(trials)}};
}

RTRAIN_DOOR void Repeater::load(const boost::json::object& state) {
    internal::read_state([&] {
        searcher_.load(state.at("searcher").as_object());
        left_ = state.at("left").as_int64();
        open_ = std::string(state.at("open").as_string());
        groups_.clear();
        group_of_.clear();
        for (const auto& [first, saved] : state.at("groups").as_object()) {
            const boost::json::array& fields = saved.as_array();
            groups_[std::string(first)] = {fields.at(0).as_object(), fields.at(1).as_int64(),
                                           fields.at(2).as_int64(), fields.at(3).as_int64(),
                                           json::number(fields.at(4)).value()};
        }
        for (const auto& [trial, first] : state.at("trials").as_object()) {
            group_of_[std::string(trial)] = std::string(first.as_string());
        }
    });
}

} // namespace rtrain::tune
