// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door tpe.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/tune/search/parzen.hpp>
#include <rtrain/tune/search/tpe.hpp>

#include <algorithm>
#include <cmath>

namespace rtrain::tune {

RTRAIN_DOOR void Tpe::begin(const Space& space, const Goal& goal, std::int64_t num_samples) {
    if (options_.candidates < 1) {
        throw ConfigError("RT-U13", detail::concat("TpeOptions::candidates is ",
                                                   options_.candidates, "; expected at least 1"));
    }
    plan_ = internal::Plan(space, num_samples, options_.points_to_evaluate, options_.seed);
    plan_.check_learns("Tpe", goal);
    mode_ = goal.mode;
    history_ = internal::History(plan_.parameters(), mode_);
}

RTRAIN_DOOR Suggestion Tpe::ask(const std::string& trial) {
    if (plan_.exhausted()) {
        return Exhausted{};
    }
    std::optional<std::vector<double>> values = plan_.next();
    if (values) {
        plan_.complete(*values);
    } else {
        values = suggest();
    }
    Config config = plan_.parameters().config(*values, plan_.random());
    history_.add(trial, std::move(*values));
    return config;
}

RTRAIN_DOOR std::vector<double> Tpe::suggest() {
    if (static_cast<std::int64_t>(history_.finished() + history_.failed()) <
        options_.startup_trials) {
        return plan_.parameters().draw_all(plan_.random());
    }
    std::vector<double> values(plan_.parameters().size(), internal::absent);
    for (std::size_t p = 0; p < values.size(); ++p) { // choices precede their parts
        if (std::isnan(values[p]) && plan_.parameters().active(p, values)) {
            suggest_group(history_.group_of(p), values);
        }
    }
    return values;
}

RTRAIN_DOOR void Tpe::suggest_group(const std::vector<std::size_t>& group,
                                    std::vector<double>& values) {
    std::vector<internal::Dimension> dimensions;
    dimensions.reserve(group.size());
    for (const std::size_t p : group) {
        dimensions.push_back(internal::dimension_of(plan_.parameters()[p].domain));
    }
    const internal::History::Split split = history_.split(group);
    const internal::ParzenEstimator below(dimensions, split.below, split.below_count);
    const internal::ParzenEstimator above(dimensions, split.above, split.above_count);
    std::vector<std::vector<double>> candidates;
    for (std::int64_t i = 0; i < options_.candidates; ++i) {
        candidates.push_back(below.sample(plan_.random()));
    }
    const std::vector<double> good = below.log_pdf(candidates);
    const std::vector<double> bad = above.log_pdf(candidates);
    std::size_t best = 0;
    for (std::size_t i = 1; i < candidates.size(); ++i) {
        if (good[i] - bad[i] > good[best] - bad[best]) {
            best = i;
        }
    }
    for (std::size_t d = 0; d < group.size(); ++d) {
        const double x = candidates[best][d];
        const internal::Dimension& dimension = dimensions[d];
        values[group[d]] = dimension.options > 0 || dimension.discrete()
                               ? x
                               : internal::nearest(dimension.range, dimension.outer(x));
    }
}

RTRAIN_DOOR boost::json::object Tpe::save() const {
    boost::json::object state = plan_.save();
    state["trials"] = history_.save();
    return state;
}

RTRAIN_DOOR void Tpe::load(const boost::json::object& state) {
    internal::read_state([&] {
        plan_.load(state);
        history_ = internal::History(plan_.parameters(), mode_);
        history_.load(state.at("trials").as_array());
    });
}

} // namespace rtrain::tune
