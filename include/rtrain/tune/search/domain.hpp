// SPDX-License-Identifier: Apache-2.0
/// @file
/// Domains: the possible values of a hyperparameter and their distribution. Their bounds are Ray
/// Tune's: the upper one is excluded, in those with a `q` it is included. Guide: docs/tune.md. Cost
/// tier 1: Boost.JSON.
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
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::tune {

class Random;
class Space;

/// Numbers between bounds.
struct Range {
    double low = 0;           ///< included
    double high = 1;          ///< included, except where `step` is 0
    double step = 0;          ///< values are its multiples; 0: any real number
    bool logarithmic = false; ///< uniform in the logarithm of the value
    bool integer = false;     ///< the configuration has integers
};

/// Normally distributed numbers, without bounds.
struct Normal {
    double mean = 0;      ///< of all
    double deviation = 1; ///< their standard deviation
    double step = 0;      ///< values are its multiples; 0: any real number
};

/// An option of a choice: a value, or a nested space, whose configuration becomes the value.
class Option {
public:
    template <class T>
    requires(!std::same_as<T, Option> && !std::same_as<T, Space> &&
             std::constructible_from<boost::json::value, T>) Option(T value)
        : held_(boost::json::value(std::move(value))) {} // NOLINT(*-explicit-*)
    Option(Space space);                                 // NOLINT(*-explicit-*)

    /// The nested space; null if the option is a value.
    [[nodiscard]] const Space* space() const noexcept {
        const auto* held = std::get_if<std::shared_ptr<const Space>>(&held_);
        return held == nullptr ? nullptr : held->get();
    }
    /// The value; only if the option is not a space.
    [[nodiscard]] const boost::json::value& value() const {
        return std::get<boost::json::value>(held_);
    }

private:
    std::variant<boost::json::value, std::shared_ptr<const Space>> held_;
};

/// One of several values, all equally likely.
struct Choice {
    std::vector<Option> options; ///< at least one
};

/// Computes a value from the configuration so far, which has the values of all domains in the space
/// and of earlier functions. No searcher learns from it.
struct SampleFrom {
    /// Called once per configuration.
    std::function<boost::json::value(const Config& so_far, Random& random)> function;
};

/// Each of the values in turn (BasicVariant), combined with those of other grids.
struct Grid {
    std::vector<boost::json::value> values; ///< at least one
};

/// The domain of a hyperparameter.
using Domain = std::variant<Range, Normal, Choice, SampleFrom, Grid>;

/// Real numbers in [low, high). Throws ConfigError (RT-U1: bounds) as all of these do.
[[nodiscard]] Domain uniform(double low, double high);
/// Multiples of `q` in [low, high], which `q` must divide (RT-U3).
[[nodiscard]] Domain quniform(double low, double high, double q);
/// Real numbers in [low, high), their logarithms evenly distributed; low > 0 (RT-U2).
[[nodiscard]] Domain loguniform(double low, double high);
/// The same for multiples of `q` in [low, high].
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
/// The same for multiples of `q` in [low, high].
[[nodiscard]] Domain qlograndint(std::int64_t low, std::int64_t high, std::int64_t q = 1);

/// One of the options, at least one (RT-U4). Spaces make a conditional space:
/// `choice({Space{{"kind", "sgd"}, {"momentum", uniform(0, 1)}}, Space{{"kind", "adam"}}})`.
[[nodiscard]] Domain choice(std::initializer_list<Option> options);
[[nodiscard]] Domain choice(std::vector<Option> options);
template <class T>
requires std::constructible_from<Option, T>
[[nodiscard]] Domain choice(const std::vector<T>& options) {
    return choice(std::vector<Option>(options.begin(), options.end()));
}

/// `function(const Config& so_far)`, optionally with a `Random&` as second argument, returns
/// anything convertible to boost::json::value.
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

/// Each of the values, at least one (RT-U4).
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
