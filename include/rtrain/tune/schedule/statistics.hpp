// SPDX-License-Identifier: Apache-2.0
/// @file
/// Statistics of a few numbers, in NumPy's order of operations and therefore bit-identical:
/// schedulers decide by comparisons that depend on the last bit. Cost tier 0: std only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace rtrain::tune::internal {

/// Like numpy.sum: eight partial sums, and recursive halves for more than 128 values.
[[nodiscard]] inline double sum_of(std::span<const double> values) {
    const std::size_t count = values.size();
    if (count < 8) {
        double sum = 0;
        for (const double value : values) {
            sum += value;
        }
        return sum;
    }
    if (count > 128) {
        const std::size_t half = count / 2 - count / 2 % 8;
        return sum_of(values.first(half)) + sum_of(values.subspan(half));
    }
    double part[8];
    std::copy_n(values.begin(), 8, part);
    std::size_t at = 8;
    for (; at + 8 <= count; at += 8) {
        for (std::size_t lane = 0; lane < 8; ++lane) {
            part[lane] += values[at + lane];
        }
    }
    double sum =
        ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    for (; at < count; ++at) {
        sum += values[at];
    }
    return sum;
}

/// NaN for an empty range.
[[nodiscard]] inline double mean_of(std::span<const double> values) {
    return values.empty() ? std::numeric_limits<double>::quiet_NaN()
                          : sum_of(values) / static_cast<double>(values.size());
}

/// The median of at least one value, none of them NaN.
[[nodiscard]] inline double median_of(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Population standard deviation, like numpy.std.
[[nodiscard]] inline double deviation_of(std::vector<double> values) {
    const double mean = mean_of(values);
    for (double& value : values) {
        value = (value - mean) * (value - mean);
    }
    return std::sqrt(mean_of(values));
}

/// The quantile (0 to 1) of sorted numbers with linear interpolation, like numpy.percentile; NaN
/// for none.
[[nodiscard]] inline double quantile_of_sorted(std::span<const double> values, double quantile) {
    if (values.empty()) {
        return std::numeric_limits<double>::quiet_NaN();
    }
    const double place = static_cast<double>(values.size() - 1) * quantile;
    const double floor = std::floor(place);
    const auto below = static_cast<std::size_t>(floor);
    const double from = values[below];
    const double to = values[std::min(below + 1, values.size() - 1)];
    const double way = place - floor;
    if (way == 0 || from == to || std::isinf(from)) { // the difference of infinities is NaN
        return from;
    }
    const double difference = to - from;
    if (std::isinf(difference)) {
        return std::lerp(from, to, way);
    }
    return way >= 0.5 ? to - difference * (1 - way) : from + difference * way;
}

} // namespace rtrain::tune::internal
