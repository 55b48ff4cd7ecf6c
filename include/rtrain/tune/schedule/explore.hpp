// SPDX-License-Identifier: Apache-2.0
/// @file
/// Mutates configurations in population based training. Source: Jaderberg et al., Population Based
/// Training of Neural Networks, 2017; as in Ray Tune. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/tune/search/space.hpp>

#include <boost/json/value.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::tune::internal {

/// Throws ConfigError [RT-U66] unless each entry can be mutated.
inline void require_mutable(const Space& mutations) {
    for (const auto& entry : mutations) {
        if (const auto* const inner = std::get_if<std::shared_ptr<const Space>>(&entry.content)) {
            require_mutable(**inner);
            continue;
        }
        const auto* const domain = std::get_if<Domain>(&entry.content);
        const auto* const choice = domain ? std::get_if<Choice>(domain) : nullptr;
        const bool fits =
            domain != nullptr && !std::holds_alternative<Grid>(*domain) &&
            (choice == nullptr ||
             std::none_of(choice->options.begin(), choice->options.end(),
                          [](const Option& option) { return option.space() != nullptr; }));
        if (!fits) {
            throw ConfigError("RT-U66", rtrain::detail::concat(
                                            "hyperparam_mutations has \"", entry.name,
                                            "\", which Pbt cannot mutate; use a range, randn, a "
                                            "choice of values, sample_from, or a Space of them"));
        }
    }
}

/// The same space with each name "a/b" replaced by nested spaces, as in configurations.
[[nodiscard]] inline Space nested(const Space& space) {
    std::vector<Space::Entry> entries;
    std::map<std::string, std::vector<Space::Entry>> within; // by the first part of their names
    const auto add = [&](std::string first, Space::Entry rest) {
        auto [found, is_new] = within.try_emplace(first);
        found->second.push_back(std::move(rest));
        if (is_new) {
            entries.emplace_back(std::move(first), Space()); // filled below
        }
    };
    for (const Space::Entry& entry : space) {
        const std::size_t slash = entry.name.find('/');
        if (slash != std::string::npos) {
            Space::Entry rest = entry;
            rest.name = entry.name.substr(slash + 1);
            add(entry.name.substr(0, slash), std::move(rest));
        } else if (const auto* const inner =
                       std::get_if<std::shared_ptr<const Space>>(&entry.content)) {
            for (const Space::Entry& rest : **inner) {
                add(entry.name, rest);
            }
        } else {
            entries.push_back(entry);
        }
    }
    for (Space::Entry& entry : entries) {
        if (const auto found = within.find(entry.name); found != within.end()) {
            entry.content = std::make_shared<const Space>(nested(Space(found->second)));
        }
    }
    return Space(std::move(entries));
}

/// True if two values are equal; 1 equals 1.0.
[[nodiscard]] inline bool are_equal(const boost::json::value& one,
                                    const boost::json::value& other) {
    return one.is_number() && other.is_number()
               ? one.to_number<double>() == other.to_number<double>()
               : one == other;
}

struct Exploration {
    double resample_probability = 0.25;
    std::vector<double> factors{1.2, 0.8};

    /// A changed copy of `config`.
    [[nodiscard]] Config operator()(Config config, const Space& mutations, Random& random) const {
        for (const auto& entry : mutations) {
            boost::json::value& value = config[entry.name];
            if (const auto* const inner =
                    std::get_if<std::shared_ptr<const Space>>(&entry.content)) {
                value = (*this)(value.is_object() ? value.as_object() : Config(), **inner, random);
            } else {
                const auto& domain = std::get<Domain>(entry.content);
                const auto* const choice = std::get_if<Choice>(&domain);
                value = choice != nullptr ? shifted(value, choice->options, random)
                                          : scaled(value, entry, random);
            }
        }
        return config;
    }

    /// `config` with missing values of `mutations` drawn.
    [[nodiscard]] static Config filled(Config config, const Space& mutations, Random& random) {
        for (const auto& entry : mutations) {
            const auto* const inner = std::get_if<std::shared_ptr<const Space>>(&entry.content);
            if (!config.contains(entry.name)) {
                config[entry.name] = drawn(entry, random);
            } else if (inner != nullptr && config.at(entry.name).is_object()) {
                config[entry.name] = filled(config.at(entry.name).as_object(), **inner, random);
            }
        }
        return config;
    }

private:
    [[nodiscard]] static boost::json::value drawn(const Space::Entry& entry, Random& random) {
        return Space(std::vector<Space::Entry>{entry}).sample(random).at(entry.name);
    }
    [[nodiscard]] bool resamples(Random& random) const {
        return random.uniform() < resample_probability;
    }

    /// Another one of the values, or a neighbor.
    [[nodiscard]] boost::json::value shifted(const boost::json::value& value,
                                             const std::vector<Option>& options,
                                             Random& random) const {
        const auto found = std::find_if(options.begin(), options.end(), [&](const Option& option) {
            return are_equal(option.value(), value);
        });
        if (resamples(random) || found == options.end()) {
            return options[random.below(options.size())].value();
        }
        if (random.below(2) == 0) {
            return (found == options.begin() ? found : found - 1)->value();
        }
        return (found + 1 == options.end() ? found : found + 1)->value();
    }

    /// A redraw, or the value times a factor. Integers and booleans keep their type.
    [[nodiscard]] boost::json::value scaled(const boost::json::value& value,
                                            const Space::Entry& entry, Random& random) const {
        if (resamples(random) || !value.is_number()) {
            const auto drawn_value = drawn(entry, random);
            const bool was_integer = value.is_int64() || value.is_uint64();
            return was_integer && drawn_value.is_double() ? rounded(drawn_value.get_double())
                                                          : drawn_value;
        }
        constexpr double most = std::numeric_limits<double>::max();
        const double changed = std::clamp(
            value.to_number<double>() * factors[random.below(factors.size())], -most, most);
        return value.is_double() ? boost::json::value(changed) : rounded(changed);
    }

    /// To the nearest integer, ties to even.
    [[nodiscard]] static boost::json::value rounded(double number) {
        constexpr double most = 0x1p62;
        return static_cast<std::int64_t>(std::nearbyint(std::clamp(number, -most, most)));
    }
};

} // namespace rtrain::tune::internal
