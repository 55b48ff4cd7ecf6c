// SPDX-License-Identifier: Apache-2.0
/// @file
/// Domains: what values a hyperparameter may have, and how likely each is. Their bounds are Ray
/// Tune's: the upper one is excluded, in those with a `q` it is included. Guide: docs/tune.md.
/// Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/config/run_info.hpp>

#include <boost/json/value.hpp>
#include <boost/json/value_from.hpp>
#include <boost/json/value_ref.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::tune {

class Random;
class Space;

/// Numbers between bounds.
struct Range {
    double low = 0;           ///< included
    double high = 1;          ///< included; but not where `step` is 0
    double step = 0;          ///< values are its multiples; 0: any real number
    bool logarithmic = false; ///< their logarithms are equally likely, not they
    bool integer = false;     ///< the configuration has integers
};

/// Normally distributed numbers, without bounds.
struct Normal {
    double mean = 0;      ///< of all
    double deviation = 1; ///< their standard deviation
    double step = 0;      ///< values are its multiples; 0: any real number
};

/// One of a choice: a value, or a space of its own, whose configuration is the value then.
class Option {
public:
    template <class T>
    requires(!std::same_as<T, Option> && !std::same_as<T, Space> &&
             std::constructible_from<boost::json::value, T>) Option(T value)
        : held_(boost::json::value(std::move(value))) {} // NOLINT(*-explicit-*)
    Option(Space space);                                 // NOLINT(*-explicit-*)

    /// Null where it is a value.
    [[nodiscard]] const Space* space() const noexcept {
        const auto* held = std::get_if<std::shared_ptr<const Space>>(&held_);
        return held == nullptr ? nullptr : held->get();
    }
    /// Only where it is no space.
    [[nodiscard]] const boost::json::value& value() const {
        return std::get<boost::json::value>(held_);
    }

private:
    std::variant<boost::json::value, std::shared_ptr<const Space>> held_;
};

/// One of some values, each as likely as the others.
struct Choice {
    std::vector<Option> options; ///< at least one
};

/// What a function makes of the configuration so far, in which all names of domains that stand in
/// the space have their values, and functions before it. No searcher learns from it.
struct SampleFrom {
    /// Called once for a configuration.
    std::function<boost::json::value(const Config& so_far, Random& random)> function;
};

/// Each of some values in turn (BasicVariant), together with those of other grids.
struct Grid {
    std::vector<boost::json::value> values; ///< at least one
};

/// What a hyperparameter is drawn from.
using Domain = std::variant<Range, Normal, Choice, SampleFrom, Grid>;

/// Real numbers in [low, high). Throws ConfigError (RT-U1: bounds) as all of these do.
[[nodiscard]] Domain uniform(double low, double high);
/// Multiples of `q` in [low, high], which `q` must divide (RT-U3).
[[nodiscard]] Domain quniform(double low, double high, double q);
/// Real numbers in [low, high), their logarithms evenly distributed; low > 0 (RT-U2).
[[nodiscard]] Domain loguniform(double low, double high);
/// The same of multiples of `q` in [low, high].
[[nodiscard]] Domain qloguniform(double low, double high, double q);
/// Normally distributed real numbers.
[[nodiscard]] Domain randn(double mean = 0, double deviation = 1);
/// The same, rounded to multiples of `q`.
[[nodiscard]] Domain qrandn(double mean, double deviation, double q);
/// Integers in [low, high).
[[nodiscard]] Domain randint(std::int64_t low, std::int64_t high);
/// Multiples of `q` in [low, high].
[[nodiscard]] Domain qrandint(std::int64_t low, std::int64_t high, std::int64_t q = 1);
/// Integers in [low, high), their logarithms evenly distributed; low > 0.
[[nodiscard]] Domain lograndint(std::int64_t low, std::int64_t high);
/// The same of multiples of `q` in [low, high].
[[nodiscard]] Domain qlograndint(std::int64_t low, std::int64_t high, std::int64_t q = 1);

/// One of the options, of which there is at least one (RT-U4). Spaces make a conditional space:
/// `choice({Space{{"kind", "sgd"}, {"momentum", uniform(0, 1)}}, Space{{"kind", "adam"}}})`.
[[nodiscard]] Domain choice(std::initializer_list<Option> options);
[[nodiscard]] Domain choice(std::vector<Option> options);
template <class T>
requires std::constructible_from<Option, T>
[[nodiscard]] Domain choice(const std::vector<T>& options) {
    return choice(std::vector<Option>(options.begin(), options.end()));
}

/// `function(const Config& so_far)`, or also with a `Random&` as second argument, gives what a
/// boost::json::value can be made from.
template <class F>
[[nodiscard]] Domain sample_from(F function) {
    return SampleFrom{[function = std::move(function)](const Config& so_far,
                                                       Random& random) -> boost::json::value {
        if constexpr (std::invocable<const F&, const Config&, Random&>) {
            return boost::json::value_from(function(so_far, random));
        } else {
            static_cast<void>(random);
            return boost::json::value_from(function(so_far));
        }
    }};
}

/// Each of the values, of which there is at least one (RT-U4).
[[nodiscard]] Domain grid_search(std::initializer_list<boost::json::value_ref> values);
[[nodiscard]] Domain grid_search(std::vector<boost::json::value> values);
template <class T>
requires std::constructible_from<boost::json::value, T>
[[nodiscard]] Domain grid_search(const std::vector<T>& values) {
    std::vector<boost::json::value> all;
    for (auto&& value : values) {
        all.emplace_back(T(value));
    }
    return grid_search(std::move(all));
}

} // namespace rtrain::tune

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/search/domain_definitions.hpp>
#endif
