// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door basic_variant.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/tune/search/basic_variant.hpp>

#include <cmath>

namespace rtrain::tune {

RTRAIN_DOOR void BasicVariant::begin(const Space& space, const Goal& /*goal*/,
                                     std::int64_t num_samples) {
    plan_ = internal::Plan(space, num_samples, options_.points_to_evaluate, options_.seed);
    grids_.clear();
    sample_.clear();
    double points = 1;
    std::string sizes;
    for (std::size_t p = 0; p < plan_.parameters().size(); ++p) {
        const internal::Parameter& parameter = plan_.parameters()[p];
        if (!std::holds_alternative<Grid>(parameter.domain)) {
            continue;
        }
        if (parameter.parent) {
            throw ConfigError("RT-U6",
                              detail::concat("\"", parameter.name,
                                             "\" is a grid_search within a choice, which not all "
                                             "samples have; use a choice instead"));
        }
        grids_.push_back(p);
        const std::size_t size = *internal::count_of(parameter.domain);
        points *= static_cast<double>(size);
        sizes += (sizes.empty() ? "" : " x ") + std::to_string(size);
    }
    if (points > 1e6) {
        throw ConfigError("RT-U9",
                          detail::concat("the grids have ", sizes, " = ",
                                         static_cast<std::uint64_t>(std::min(points, 1e18)),
                                         " points, and each needs a trial; use at most 1000000, or "
                                         "make some of the grids choices"));
    }
}

RTRAIN_DOOR Suggestion BasicVariant::ask(const std::string& /*trial*/) {
    if (sample_.empty()) {
        if (plan_.exhausted()) {
            return Exhausted{};
        }
        sample_ =
            plan_.next().value_or(std::vector<double>(plan_.parameters().size(), internal::absent));
        turning_.clear();
        for (const std::size_t p : grids_) {
            if (std::isnan(sample_[p])) {
                turning_.push_back(static_cast<std::uint32_t>(p));
            }
        }
        turn_ = 0;
    }
    std::vector<double> values = sample_;
    std::uint64_t left = turn_++;
    for (const std::uint32_t p : turning_) {
        const std::uint64_t size = *internal::count_of(plan_.parameters()[p].domain);
        values[p] = static_cast<double>(left % size);
        left /= size;
    }
    std::uint64_t turns = 1;
    for (const std::uint32_t p : turning_) {
        turns *= *internal::count_of(plan_.parameters()[p].domain);
    }
    if (turn_ == turns) {
        sample_.clear();
    }
    plan_.complete(values);
    return plan_.parameters().config(values, plan_.random());
}

RTRAIN_DOOR boost::json::object BasicVariant::save() const {
    boost::json::object state = plan_.save();
    state["sample"] = json::finite(boost::json::array(sample_.begin(), sample_.end()));
    state["turning"] = boost::json::array(turning_.begin(), turning_.end());
    state["turn"] = turn_;
    return state;
}

RTRAIN_DOOR void BasicVariant::load(const boost::json::object& state) {
    internal::read_state([&] {
        plan_.load(state);
        sample_.clear();
        for (const boost::json::value& value : state.at("sample").as_array()) {
            sample_.push_back(json::number(value).value());
        }
        turning_.clear();
        for (const boost::json::value& p : state.at("turning").as_array()) {
            turning_.push_back(p.to_number<std::uint32_t>());
        }
        turn_ = state.at("turn").to_number<std::uint64_t>();
    });
}

} // namespace rtrain::tune
