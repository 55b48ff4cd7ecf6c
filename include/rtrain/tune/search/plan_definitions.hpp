// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door plan.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/tune/search/plan.hpp>

#include <algorithm>
#include <cmath>

namespace rtrain::tune::internal {

RTRAIN_DOOR Plan::Plan(const Space& space, std::int64_t num_samples,
                       const std::vector<Config>& points, std::uint64_t seed)
    : parameters_(space), samples_(num_samples), random_(seed) {
    if (num_samples != -1 && num_samples < 1) {
        throw ConfigError(
            "RT-U8",
            detail::concat("num_samples is ", num_samples,
                           "; expected at least 1, or -1 for a search that is ended otherwise"));
    }
    for (const Config& point : points) {
        points_.push_back(parameters_.values_in(point));
    }
}

RTRAIN_DOOR void Plan::check_learns(const std::string& searcher, const Goal& goal) const {
    if (goal.metric.empty()) {
        throw ConfigError("RT-U7",
                          searcher +
                              " learns from a metric, but none is given; give its name and a mode");
    }
    for (const Parameter& parameter : parameters_) {
        if (std::holds_alternative<Grid>(parameter.domain)) {
            throw ConfigError("RT-U6",
                              detail::concat("\"", parameter.name, "\" is a grid_search, which ",
                                             searcher,
                                             " does not support; use a choice, or BasicVariant"));
        }
    }
}

RTRAIN_DOOR bool Plan::exhausted() const noexcept {
    return samples_ != -1 &&
           begun_ >= std::max(samples_, static_cast<std::int64_t>(points_.size()));
}

RTRAIN_DOOR std::optional<std::vector<double>> Plan::next() {
    const auto place = static_cast<std::size_t>(begun_++);
    return place < points_.size() ? std::optional(points_[place]) : std::nullopt;
}

RTRAIN_DOOR void Plan::complete(std::vector<double>& values) {
    for (std::size_t p = 0; p < values.size(); ++p) {
        if (std::isnan(values[p]) && parameters_.active(p, values)) {
            values[p] = draw(parameters_[p].domain, random_);
        }
    }
}

RTRAIN_DOOR boost::json::object Plan::save() const {
    boost::json::array names;
    for (const Parameter& parameter : parameters_) {
        names.emplace_back(parameter.name);
    }
    return {{"parameters", std::move(names)}, {"begun", begun_}, {"random", random_.save()}};
}

RTRAIN_DOOR void Plan::load(const boost::json::object& state) {
    if (state.at("parameters") != save().at("parameters")) {
        throw ConfigError("RT-U14", "a searcher cannot load the state of a search in another "
                                    "space; use the same names in the same order");
    }
    begun_ = state.at("begun").as_int64();
    random_.load(state.at("random"));
}

} // namespace rtrain::tune::internal
