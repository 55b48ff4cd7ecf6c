// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parameters: a flattened space, as searchers use it. Each domain is a parameter, whose value is
/// one double. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/tune/search/domain.hpp>
#include <rtrain/tune/search/random.hpp>

#include <boost/json/value.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace rtrain::tune::internal {

/// Value of a parameter that a configuration does not have, because another option was chosen.
inline constexpr double absent = std::numeric_limits<double>::quiet_NaN();

/// Draws the value of a parameter as a double: a number itself, the index of an option or of a
/// grid's value, the quantile of a normal distribution.
[[nodiscard]] double draw(const Domain& domain, Random& random);

/// Rounds such a double to the nearest value in `range`.
[[nodiscard]] double nearest(const Range& range, double value);

/// The configuration's value for such a double; null for an option that is a space.
[[nodiscard]] boost::json::value as_json(const Domain& domain, double value);

/// The double for a configuration's value; none where the domain has no such value.
[[nodiscard]] std::optional<double> from_json(const Domain& domain,
                                              const boost::json::value& value);

/// The number of values; none: too many to count.
[[nodiscard]] std::optional<std::size_t> count_of(const Domain& domain);

/// A domain in a space, with its name. Never a SampleFrom.
struct Parameter {
    std::string name; ///< "net/width"
    Domain domain;
    std::optional<std::size_t> parent{}; ///< the choice that it is part of
    std::size_t branch = 0;              ///< and the option
};

class Parameters {
public:
    Parameters() = default;
    explicit Parameters(const Space& space);

    [[nodiscard]] std::size_t size() const noexcept { return parameters_.size(); }
    [[nodiscard]] const Parameter& operator[](std::size_t index) const {
        return parameters_[index];
    }
    [[nodiscard]] auto begin() const noexcept { return parameters_.begin(); }
    [[nodiscard]] auto end() const noexcept { return parameters_.end(); }

    /// True if a configuration with `values` has the parameter. A parent precedes its children.
    [[nodiscard]] bool active(std::size_t index, std::span<const double> values) const {
        const Parameter& parameter = parameters_[index];
        return !parameter.parent ||
               values[*parameter.parent] == static_cast<double>(parameter.branch); // not if absent
    }

    /// Draws a value for each active parameter.
    [[nodiscard]] std::vector<double> draw_all(Random& random) const;

    /// The configuration that has these values. `random` is for SampleFrom.
    [[nodiscard]] Config config(std::span<const double> values, Random& random) const;

    /// The values of the parameters that `config` names; absent for the others. Throws ConfigError
    /// (RT-U10) for a name or a value that the space does not have.
    [[nodiscard]] std::vector<double> values_in(const Config& config) const;

private:
    using Path = std::vector<std::string>;
    struct Leaf {
        Path path;
        std::variant<boost::json::value, std::size_t, SampleFrom>
            content; ///< or a parameter's index
        std::optional<std::size_t> parent{};
        std::size_t branch = 0;
    };

    void add(const Space& space, const Path& above, std::optional<std::size_t> parent,
             std::size_t branch);
    void add(const Domain& domain, Path path, std::optional<std::size_t> parent,
             std::size_t branch);
    [[nodiscard]] bool in_branch(const Leaf& leaf, std::span<const double> values) const {
        return !leaf.parent || values[*leaf.parent] == static_cast<double>(leaf.branch);
    }

    /// Absent where the configuration does not have the leaf; none where its value is invalid.
    [[nodiscard]] std::optional<double> value_at(const Leaf& leaf, const Config& config) const;
    [[nodiscard]] bool is_space(std::size_t index, double value) const {
        const auto* choice = std::get_if<Choice>(&parameters_[index].domain);
        return choice != nullptr &&
               choice->options[static_cast<std::size_t>(value)].space() != nullptr;
    }

    std::vector<Parameter> parameters_;
    std::vector<Leaf> leaves_;
};

} // namespace rtrain::tune::internal

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/search/parameters_definitions.hpp>
#endif
