// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door domain.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/tune/search/domain.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace rtrain::tune {

namespace internal {

/// The call that created a range, such as "uniform(1, 0)".
[[nodiscard]] RTRAIN_DOOR std::string call_of(const char* function, double low, double high,
                                              std::optional<double> q = {}) {
    auto out = rtrain::detail::strict(std::ostringstream());
    out.precision(std::numeric_limits<double>::max_digits10);
    out << function << '(' << low << ", " << high;
    if (q) {
        out << ", " << *q;
    }
    out << ')';
    return out.str();
}

[[nodiscard]] RTRAIN_DOOR bool divides(double step, double bound) {
    const double count = bound / step;
    return std::abs(count - std::round(count)) <= 1e-9 * std::max(1.0, std::abs(count));
}

/// Throws for bounds with no value between them. `high` is included if there is a q.
RTRAIN_DOOR void check_bounds(const std::string& call, double low, double high,
                              std::optional<double> q, bool logarithmic) {
    if (!std::isfinite(low) || !std::isfinite(high)) {
        throw ConfigError("RT-U1", call + " has a bound that is not finite; give finite bounds, or "
                                          "use randn() for values without bounds");
    }
    if (q ? low > high : low >= high) {
        throw ConfigError(
            "RT-U1",
            detail::concat(
                call,
                " has no value; give the lower bound first, and a larger upper one, which is ",
                q ? "included" : "excluded"));
    }
    if (logarithmic && low <= 0) {
        throw ConfigError(
            "RT-U2", call + " takes the logarithm of its lower bound; give a lower bound above 0");
    }
    if (q && !(*q > 0 && std::isfinite(*q))) {
        throw ConfigError("RT-U3", call + " has no step; give a q above 0");
    }
    if (q && high / *q - low / *q > 0x1p62) {
        throw ConfigError("RT-U3", call + " has more than 2^62 multiples of q, too many to count; "
                                          "give a larger q, or use a range without q");
    }
    if (q && (!divides(*q, low) || !divides(*q, high))) {
        throw ConfigError("RT-U3",
                          call + " has a bound that is not a multiple of q; give multiples of q");
    }
}

[[nodiscard]] RTRAIN_DOOR Domain real_range(const char* name, double low, double high,
                                            std::optional<double> q, bool logarithmic) {
    check_bounds(call_of(name, low, high, q), low, high, q, logarithmic);
    return Range{low, high, q.value_or(0), logarithmic, false};
}

[[nodiscard]] RTRAIN_DOOR Domain integer_range(const char* name, std::int64_t low,
                                               std::int64_t high, std::optional<std::int64_t> q,
                                               bool logarithmic) {
    constexpr std::int64_t largest =
        std::int64_t{1} << 53U; // largest bound: doubles represent all integers up to it
    const auto from = static_cast<double>(low);
    const auto to = static_cast<double>(high);
    const std::optional<double> step = q ? std::optional(static_cast<double>(*q)) : std::nullopt;
    const std::string call = call_of(name, from, to, step);
    check_bounds(call, from, to, step, logarithmic);
    if (low < -largest || high > largest) {
        throw ConfigError("RT-U1", call + " has a bound beyond 2^53, the largest allowed");
    }
    return Range{from, q ? to : to - 1, step.value_or(1), logarithmic, true};
}

[[nodiscard]] RTRAIN_DOOR Domain normal(const char* name, double mean, double deviation,
                                        std::optional<double> q) {
    const std::string call = call_of(name, mean, deviation, q);
    if (!std::isfinite(mean) || !(deviation > 0 && std::isfinite(deviation))) {
        throw ConfigError("RT-U1",
                          call + " is not a distribution; give a mean and a deviation above 0");
    }
    if (q && !(*q > 0 && std::isfinite(*q))) {
        throw ConfigError("RT-U3", call + " has no step; give a q above 0");
    }
    return Normal{mean, deviation, q.value_or(0)};
}

} // namespace internal

RTRAIN_DOOR Domain uniform(double low, double high) {
    return internal::real_range("uniform", low, high, std::nullopt, false);
}
RTRAIN_DOOR Domain quniform(double low, double high, double q) {
    return internal::real_range("quniform", low, high, q, false);
}
RTRAIN_DOOR Domain loguniform(double low, double high) {
    return internal::real_range("loguniform", low, high, std::nullopt, true);
}
RTRAIN_DOOR Domain qloguniform(double low, double high, double q) {
    return internal::real_range("qloguniform", low, high, q, true);
}
RTRAIN_DOOR Domain randn(double mean, double deviation) {
    return internal::normal("randn", mean, deviation, std::nullopt);
}
RTRAIN_DOOR Domain qrandn(double mean, double deviation, double q) {
    return internal::normal("qrandn", mean, deviation, q);
}
RTRAIN_DOOR Domain randint(std::int64_t low, std::int64_t high) {
    return internal::integer_range("randint", low, high, std::nullopt, false);
}
RTRAIN_DOOR Domain qrandint(std::int64_t low, std::int64_t high, std::int64_t q) {
    return internal::integer_range("qrandint", low, high, q, false);
}
RTRAIN_DOOR Domain lograndint(std::int64_t low, std::int64_t high) {
    return internal::integer_range("lograndint", low, high, std::nullopt, true);
}
RTRAIN_DOOR Domain qlograndint(std::int64_t low, std::int64_t high, std::int64_t q) {
    return internal::integer_range("qlograndint", low, high, q, true);
}

RTRAIN_DOOR Domain choice(std::vector<Option> options) {
    if (options.empty()) {
        throw ConfigError("RT-U4", "choice({}) has nothing to choose from; give an option");
    }
    return Choice{std::move(options)};
}
RTRAIN_DOOR Domain choice(std::initializer_list<Option> options) {
    return choice(std::vector<Option>(options));
}

RTRAIN_DOOR Domain grid_search(std::vector<boost::json::value> values) {
    if (values.empty()) {
        throw ConfigError("RT-U4", "grid_search({}) has no value; give at least one");
    }
    return Grid{std::move(values)};
}
RTRAIN_DOOR Domain grid_search(std::initializer_list<boost::json::value_ref> values) {
    const boost::json::array all(values);
    return grid_search(std::vector<boost::json::value>(all.begin(), all.end()));
}

} // namespace rtrain::tune
