// SPDX-License-Identifier: Apache-2.0
/// @file
/// A space as JSON, to compare it when a search is resumed. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/tune/search/space.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <memory>
#include <variant>

namespace rtrain::tune::internal {

[[nodiscard]] inline boost::json::object described(const Space& space);

[[nodiscard]] inline boost::json::value described(const Domain& domain) {
    if (const auto* const range = std::get_if<Range>(&domain)) {
        return boost::json::object{{"low", range->low},
                                   {"high", range->high},
                                   {"step", range->step},
                                   {"log", range->logarithmic},
                                   {"integer", range->integer}};
    }
    if (const auto* const normal = std::get_if<Normal>(&domain)) {
        return boost::json::object{
            {"mean", normal->mean}, {"deviation", normal->deviation}, {"step", normal->step}};
    }
    boost::json::array values;
    if (const auto* const choice = std::get_if<Choice>(&domain)) {
        for (const Option& option : choice->options) {
            values.push_back(option.space() != nullptr
                                 ? boost::json::value(described(*option.space()))
                                 : option.value());
        }
        return boost::json::object{{"choice", std::move(values)}};
    }
    if (const auto* const grid = std::get_if<Grid>(&domain)) {
        values.insert(values.end(), grid->values.begin(), grid->values.end());
        return boost::json::object{{"grid_search", std::move(values)}};
    }
    return "sample_from";
}

/// Entries by name; for constants, only the name.
[[nodiscard]] inline boost::json::object described(const Space& space) {
    boost::json::object names;
    for (const Space::Entry& entry : space) {
        if (const auto* const domain = std::get_if<Domain>(&entry.content)) {
            names[entry.name] = described(*domain);
        } else if (const auto* const inner =
                       std::get_if<std::shared_ptr<const Space>>(&entry.content)) {
            names[entry.name] = described(**inner);
        } else {
            names[entry.name] = "constant";
        }
    }
    return names;
}

} // namespace rtrain::tune::internal
