// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door history.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/tune/search/history.hpp>

#include <algorithm>
#include <cmath>
#include <map>

namespace rtrain::tune::internal {

RTRAIN_DOOR History::History(const Parameters& parameters, ScoreOrder mode)
    : mode_(mode), columns_(parameters.size()), orders_(parameters.size()),
      groups_(parameters.size(), 0) {
    for (const Parameter& parameter : parameters) {
        dimensions_.push_back(dimension_of(parameter.domain));
    }
}

RTRAIN_DOOR void History::add(const std::string& id, std::vector<double> values) {
    const auto number = static_cast<std::uint32_t>(trials_.size());
    if (!numbers_.emplace(id, number).second) {
        throw ConfigError("RT-U11", detail::concat("ask() was called twice for trial \"", id,
                                                   "\"; use a unique id for each trial"));
    }
    for (std::size_t p = 0; p < columns_.size(); ++p) {
        std::vector<double>& column = columns_[p];
        column.push_back(dimensions_[p].inner(values[p]));
        if (!std::isnan(column.back())) {
            const auto above = std::upper_bound(
                orders_[p].begin(), orders_[p].end(), column.back(),
                [&](double value, std::uint32_t other) { return value < column[other]; });
            orders_[p].insert(above, number);
        }
    }
    trials_.push_back({id, std::move(values)});
}

RTRAIN_DOOR std::uint32_t History::running(const std::string& id) const {
    const auto found = numbers_.find(id);
    if (found == numbers_.end() || trials_[found->second].state != State::running) {
        throw ConfigError(
            "RT-U11",
            detail::concat(
                "the searcher got a result for trial \"", id,
                "\", which is not running; call ask() first, and end each trial only once"));
    }
    return found->second;
}

RTRAIN_DOOR void History::report(const std::string& id, std::int64_t iteration, double score) {
    Trial& trial = trials_[running(id)];
    trial.iteration = iteration;
    trial.score = mode_ == ScoreOrder::max ? -score : score;
}

RTRAIN_DOOR void History::end(const std::string& id, std::optional<double> score, TrialEnd end) {
    const std::uint32_t number = running(id);
    Trial& trial = trials_[number];
    if (score && (end == TrialEnd::completed || trial.iteration < 0)) {
        report(id, std::max<std::int64_t>(trial.iteration, 0), *score);
    }
    const bool lacks_score = end == TrialEnd::completed && !score;
    trial.state = end == TrialEnd::errored || lacks_score || std::isnan(trial.score) ? State::failed
                  : end == TrialEnd::stopped ? State::stopped
                                             : State::completed;
    settle(number);
}

RTRAIN_DOOR void History::settle(std::uint32_t number) {
    const Trial& trial = trials_[number];
    if (trial.state == State::failed) {
        ++failed_;
        return;
    }
    const bool completed = trial.state == State::completed;
    // The later a trial was stopped, the better. One without a report is the worst.
    const Rank rank = completed             ? Rank{0, trial.score, number}
                      : trial.iteration < 0 ? Rank{1, 0.0, number}
                                            : Rank{-trial.iteration, trial.score, number};
    std::vector<Rank>& ranks = completed ? completed_ : stopped_;
    ranks.insert(std::upper_bound(ranks.begin(), ranks.end(), rank), rank);
    refine_groups(trial);
}

RTRAIN_DOOR void History::refine_groups(const Trial& trial) {
    const bool has_all = std::none_of(trial.values.begin(), trial.values.end(),
                                      [](double value) { return std::isnan(value); });
    if (has_all && whole_) {
        return;
    }
    whole_ = has_all && finished() == 1;
    std::map<std::pair<std::uint32_t, bool>, std::uint32_t> parts;
    for (std::size_t p = 0; p < groups_.size(); ++p) {
        const std::pair<std::uint32_t, bool> part(groups_[p], !std::isnan(trial.values[p]));
        if (part != std::pair<std::uint32_t, bool>(0, false)) {
            groups_[p] =
                parts.emplace(part, static_cast<std::uint32_t>(parts.size() + 1)).first->second;
        }
    }
}

RTRAIN_DOOR std::vector<std::size_t> History::group_of(std::size_t parameter) const {
    if (groups_[parameter] == 0) {
        return {parameter};
    }
    std::vector<std::size_t> group;
    for (std::size_t p = 0; p < groups_.size(); ++p) {
        if (groups_[p] == groups_[parameter]) {
            group.push_back(p);
        }
    }
    return group;
}

/// Marks the best trials: a tenth of all, failed ones included, and at most 25.
RTRAIN_DOOR std::vector<char> History::good() const {
    std::vector<char> good(trials_.size(), 0);
    std::size_t left = std::min<std::size_t>((finished() + failed_ + 9) / 10, 25);
    for (const std::vector<Rank>* ranks : {&completed_, &stopped_}) {
        for (std::size_t i = 0; i < ranks->size() && left > 0; ++i, --left) {
            good[std::get<2>((*ranks)[i])] = 1;
        }
    }
    return good;
}

RTRAIN_DOOR History::Split History::split(const std::vector<std::size_t>& group) const {
    const std::vector<char> is_good = good();
    Split split;
    split.below.resize(group.size());
    split.above.resize(group.size());
    std::vector<std::uint32_t> places(trials_.size()); // within its half
    std::vector<char> counts(trials_.size(), 0);
    for (std::size_t number = 0; number < trials_.size(); ++number) {
        const Trial& trial = trials_[number];
        counts[number] = std::none_of(group.begin(), group.end(),
                                      [&](std::size_t p) { return std::isnan(trial.values[p]); })
                             ? 1
                             : 0;
        if (counts[number] != 0) {
            std::size_t& count = is_good[number] != 0 ? split.below_count : split.above_count;
            places[number] = static_cast<std::uint32_t>(count++);
        }
    }
    for (std::size_t d = 0; d < group.size(); ++d) {
        Observations& below = split.below[d];
        Observations& above = split.above[d];
        below.values.resize(split.below_count);
        above.values.resize(split.above_count);
        below.order.reserve(split.below_count);
        above.order.reserve(split.above_count);
        for (const std::uint32_t number : orders_[group[d]]) {
            if (counts[number] != 0) {
                Observations& half = is_good[number] != 0 ? below : above;
                half.values[places[number]] = columns_[group[d]][number];
                half.order.push_back(places[number]);
            }
        }
    }
    return split;
}

RTRAIN_DOOR boost::json::array History::save() const {
    boost::json::array saved;
    for (const Trial& trial : trials_) {
        boost::json::array values(trial.values.begin(), trial.values.end());
        saved.push_back(json::finite(boost::json::array{trial.id, std::move(values),
                                                        static_cast<int>(trial.state), trial.score,
                                                        trial.iteration}));
    }
    return saved;
}

RTRAIN_DOOR void History::load(const boost::json::array& saved) {
    for (const boost::json::value& each : saved) {
        const boost::json::array& fields = each.as_array();
        std::vector<double> values;
        for (const boost::json::value& value : fields.at(1).as_array()) {
            values.push_back(json::number(value).value());
        }
        if (values.size() != columns_.size()) {
            throw std::invalid_argument("a trial in a different space");
        }
        const auto number = static_cast<std::uint32_t>(trials_.size());
        add(std::string(fields.at(0).as_string()), std::move(values));
        Trial& trial = trials_[number];
        trial.state = static_cast<State>(fields.at(2).as_int64());
        trial.score = json::number(fields.at(3)).value();
        trial.iteration = fields.at(4).as_int64();
        if (trial.state != State::running) {
            settle(number);
        }
    }
}

} // namespace rtrain::tune::internal
