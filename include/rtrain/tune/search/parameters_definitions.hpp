// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door parameters.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/tune/search/normal.hpp>
#include <rtrain/tune/search/parameters.hpp>
#include <rtrain/tune/search/space.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace rtrain::tune::internal {

/// The parts of a name "a/b".
[[nodiscard]] RTRAIN_DOOR std::vector<std::string> parts_of(const std::string& name) {
    std::vector<std::string> parts(1);
    for (const char character : name) {
        if (character == '/') {
            parts.emplace_back();
        } else {
            parts.back() += character;
        }
    }
    return parts;
}

[[nodiscard]] RTRAIN_DOOR std::string name_of(const std::vector<std::string>& path) {
    std::string name;
    for (const std::string& part : path) {
        name += (name.empty() ? "" : "/") + part;
    }
    return name;
}

RTRAIN_DOOR void put(Config& config, std::span<const std::string> path, boost::json::value value) {
    boost::json::object* within = &config;
    for (const std::string& part : path.first(path.size() - 1)) {
        boost::json::value& next = (*within)[part];
        if (!next.is_object()) {
            next = boost::json::object();
        }
        within = &next.get_object();
    }
    (*within)[path.back()] = std::move(value);
}

RTRAIN_DOOR double nearest(const Range& range, double value) {
    if (range.step == 0) {
        return std::clamp(value, range.low, std::nextafter(range.high, range.low));
    }
    return std::clamp(std::round(value / range.step) * range.step, range.low, range.high);
}

/// Number of steps from the lowest value to the highest.
[[nodiscard]] RTRAIN_DOOR std::uint64_t steps_of(const Range& range) {
    return static_cast<std::uint64_t>(
        std::llround(range.high / range.step - range.low / range.step));
}

/// Multiples are equally likely; Ray rounds, so that the first and last are half as likely.
[[nodiscard]] RTRAIN_DOOR double draw_range(const Range& range, Random& random) {
    if (!range.logarithmic) {
        if (range.step == 0) {
            return random.uniform(range.low, range.high);
        }
        const auto drawn = static_cast<double>(random.below(steps_of(range) + 1));
        return nearest(range, (range.low / range.step + drawn) * range.step);
    }
    if (range.step == 0) {
        return nearest(range, std::exp(random.uniform(std::log(range.low), std::log(range.high))));
    }
    if (range.integer && range.step == 1) { // like Ray: the integer part of a real number
        return nearest(range, std::floor(std::exp(
                                  random.uniform(std::log(range.low), std::log(range.high + 1)))));
    }
    return nearest(range, std::exp(random.uniform(std::log(range.low - range.step / 2),
                                                  std::log(range.high + range.step / 2))));
}

RTRAIN_DOOR double draw(const Domain& domain, Random& random) {
    if (const auto* range = std::get_if<Range>(&domain)) {
        return draw_range(*range, random);
    }
    if (std::holds_alternative<Normal>(domain)) {
        return random.quantile();
    }
    return static_cast<double>(random.below(*count_of(domain)));
}

RTRAIN_DOOR boost::json::value as_json(const Domain& domain, double value) {
    if (const auto* range = std::get_if<Range>(&domain)) {
        return range->integer ? boost::json::value(static_cast<std::int64_t>(value))
                              : boost::json::value(value);
    }
    if (const auto* normal = std::get_if<Normal>(&domain)) {
        const double x = normal->mean + normal->deviation * normal_quantile(value);
        const double rounded = normal->step == 0 ? x : std::round(x / normal->step) * normal->step;
        constexpr double most = std::numeric_limits<double>::max();
        return std::clamp(rounded, -most, most);
    }
    const auto place = static_cast<std::size_t>(value);
    if (const auto* choice = std::get_if<Choice>(&domain)) {
        const Option& option = choice->options[place];
        return option.space() != nullptr ? boost::json::value(nullptr) : option.value();
    }
    return std::get<Grid>(domain).values[place];
}

RTRAIN_DOOR std::optional<double> from_json(const Domain& domain, const boost::json::value& value) {
    if (const auto* range = std::get_if<Range>(&domain)) {
        const std::optional<double> number = json::number(value);
        if (!number || !(*number >= range->low && *number <= range->high) ||
            (range->step != 0 &&
             std::abs(nearest(*range, *number) - *number) > 1e-9 * range->step)) {
            return std::nullopt;
        }
        return nearest(*range, *number);
    }
    if (const auto* normal = std::get_if<Normal>(&domain)) {
        const std::optional<double> number = json::number(value);
        if (!number || !std::isfinite(*number)) {
            return std::nullopt;
        }
        const double quantile = normal_mass((*number - normal->mean) / normal->deviation);
        return std::clamp(quantile, 0x1p-53, 1 - 0x1p-53);
    }
    for (std::size_t i = 0; i < *count_of(domain); ++i) {
        const auto* choice = std::get_if<Choice>(&domain);
        if (choice != nullptr && choice->options[i].space() != nullptr) {
            continue; // Parameters handles its parts
        }
        if (as_json(domain, static_cast<double>(i)) == value) {
            return static_cast<double>(i);
        }
    }
    return std::nullopt;
}

RTRAIN_DOOR std::optional<std::size_t> count_of(const Domain& domain) {
    if (const auto* range = std::get_if<Range>(&domain)) {
        return range->step == 0 ? std::nullopt : std::optional<std::size_t>(steps_of(*range) + 1);
    }
    if (const auto* choice = std::get_if<Choice>(&domain)) {
        return choice->options.size();
    }
    if (const auto* grid = std::get_if<Grid>(&domain)) {
        return grid->values.size();
    }
    return std::nullopt;
}

RTRAIN_DOOR Parameters::Parameters(const Space& space) {
    add(space, {}, std::nullopt, 0);
}

RTRAIN_DOOR void Parameters::add(const Space& space, const Path& above,
                                 std::optional<std::size_t> parent, std::size_t branch) {
    for (const Space::Entry& entry : space) {
        Path path = above;
        for (std::string& part : parts_of(entry.name)) {
            path.push_back(std::move(part));
        }
        if (const auto* within = std::get_if<std::shared_ptr<const Space>>(&entry.content)) {
            if ((*within)->empty()) {
                leaves_.push_back(
                    {path, boost::json::value(boost::json::object()), parent, branch});
            }
            add(**within, path, parent, branch);
        } else if (const auto* constant = std::get_if<boost::json::value>(&entry.content)) {
            leaves_.push_back({std::move(path), *constant, parent, branch});
        } else {
            add(std::get<Domain>(entry.content), std::move(path), parent, branch);
        }
    }
}

RTRAIN_DOOR void Parameters::add(const Domain& domain, Path path, std::optional<std::size_t> parent,
                                 std::size_t branch) {
    if (const auto* function = std::get_if<SampleFrom>(&domain)) {
        leaves_.push_back({std::move(path), *function, parent, branch});
        return;
    }
    const std::size_t index = parameters_.size();
    parameters_.push_back({name_of(path), domain, parent, branch});
    leaves_.push_back({path, index, parent, branch});
    if (const auto* choice = std::get_if<Choice>(&domain)) {
        for (std::size_t i = 0; i < choice->options.size(); ++i) {
            if (const Space* space = choice->options[i].space()) {
                if (space->empty()) {
                    leaves_.push_back({path, boost::json::value(boost::json::object()), index, i});
                }
                add(*space, path, index, i);
            }
        }
    }
}

RTRAIN_DOOR std::vector<double> Parameters::draw_all(Random& random) const {
    std::vector<double> values(size(), absent);
    for (std::size_t i = 0; i < size(); ++i) {
        if (active(i, values)) {
            values[i] = draw(parameters_[i].domain, random);
        }
    }
    return values;
}

RTRAIN_DOOR Config Parameters::config(std::span<const double> values, Random& random) const {
    Config config;
    for (const Leaf& leaf : leaves_) {
        if (!in_branch(leaf, values)) {
            continue;
        }
        if (const auto* constant = std::get_if<boost::json::value>(&leaf.content)) {
            put(config, leaf.path, *constant);
        } else if (const auto* index = std::get_if<std::size_t>(&leaf.content)) {
            put(config, leaf.path, as_json(parameters_[*index].domain, values[*index]));
        }
    }
    for (const Leaf& leaf : leaves_) {
        const auto* function = std::get_if<SampleFrom>(&leaf.content);
        if (function != nullptr && in_branch(leaf, values)) {
            put(config, leaf.path, function->function(config, random));
        }
    }
    return config;
}

/// The value at `path` in `config`; null if absent.
[[nodiscard]] RTRAIN_DOOR const boost::json::value* at(const Config& config,
                                                       std::span<const std::string> path) {
    const boost::json::object* within = &config;
    for (const std::string& part : path.first(path.size() - 1)) {
        const boost::json::value* next = within->if_contains(part);
        if (next == nullptr || !next->is_object()) {
            return nullptr;
        }
        within = &next->get_object();
    }
    return within->if_contains(path.back());
}

/// A name in `config` that is not below one of `known`; empty if there is none.
[[nodiscard]] RTRAIN_DOOR std::string unknown_name(const Config& config, const std::string& above,
                                                   const std::vector<std::string>& known) {
    for (const auto& [key, value] : config) {
        std::string name = above + std::string(key);
        if (std::find(known.begin(), known.end(), name) != known.end()) {
            continue;
        }
        if (!value.is_object() || value.get_object().empty()) {
            return name;
        }
        if (std::string within = unknown_name(value.get_object(), name + '/', known);
            !within.empty()) {
            return within;
        }
    }
    return {};
}

RTRAIN_DOOR std::optional<double> Parameters::value_at(const Leaf& leaf,
                                                       const Config& config) const {
    const boost::json::value* found = at(config, leaf.path);
    if (found == nullptr) {
        return absent;
    }
    const std::size_t index = std::get<std::size_t>(leaf.content);
    if (const std::optional<double> value = from_json(parameters_[index].domain, *found)) {
        return value;
    }
    const auto* choice = std::get_if<Choice>(&parameters_[index].domain);
    for (std::size_t i = 0; choice != nullptr && found->is_object() && i < choice->options.size();
         ++i) {
        const auto unlike = [&](const Leaf& part) {
            if (part.parent != index || part.branch != i) {
                return false;
            }
            const boost::json::value* there = at(config, part.path);
            const auto* constant = std::get_if<boost::json::value>(&part.content);
            return there == nullptr      ? constant != nullptr
                   : constant != nullptr ? *there != *constant
                                         : std::holds_alternative<std::size_t>(part.content) &&
                                               !value_at(part, config);
        };
        if (choice->options[i].space() != nullptr &&
            std::none_of(leaves_.begin(), leaves_.end(), unlike)) {
            return static_cast<double>(i);
        }
    }
    return std::nullopt;
}

RTRAIN_DOOR std::vector<double> Parameters::values_in(const Config& config) const {
    const auto refuse = [](const std::string& name, const std::string& why) {
        throw ConfigError("RT-U10", detail::concat("points_to_evaluate: \"", name, "\" ", why));
    };
    std::vector<double> values(size(), absent);
    std::vector<std::string> known;
    for (const Leaf& leaf : leaves_) {
        if (!in_branch(leaf, values)) {
            continue;
        }
        const std::string name = name_of(leaf.path);
        const boost::json::value* found = at(config, leaf.path);
        const auto* constant = std::get_if<boost::json::value>(&leaf.content);
        if (constant != nullptr && found != nullptr && *found != *constant) {
            refuse(name, "is the constant " + json::serialize(*constant) + " in the space");
        }
        if (const auto* index = std::get_if<std::size_t>(&leaf.content)) {
            const std::optional<double> value = value_at(leaf, config);
            if (!value) {
                refuse(name, "cannot be " + json::serialize(*found) + " in the space");
            }
            values[*index] = *value;
            if (found != nullptr && found->is_object() && is_space(*index, *value)) {
                continue; // its parts are separate leaves
            }
        } else if (constant == nullptr && found != nullptr) {
            refuse(name, "is computed by sample_from(); leave it out");
        }
        known.push_back(name);
    }
    if (const std::string name = unknown_name(config, "", known); !name.empty()) {
        refuse(name, "is not a name in the space");
    }
    return values;
}

} // namespace rtrain::tune::internal

namespace rtrain::tune {

RTRAIN_DOOR Config Space::sample(Random& random) const {
    const internal::Parameters parameters(*this);
    const std::vector<double> values = parameters.draw_all(random);
    return parameters.config(values, random);
}

} // namespace rtrain::tune
