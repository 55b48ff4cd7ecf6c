// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts an Arrow decimal to the nearest double.
#pragma once

#include <arrow/util/decimal.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rtrain::detail {

/// Arrow's ToDouble() multiplies by a power of ten, which is not exact. A quotient of two exact
/// numbers is rounded only once.
template <class Decimal>
[[nodiscard]] double nearest_double(const Decimal& decimal, std::int32_t scale) {
    constexpr std::array powers{1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    constexpr std::int64_t exact = std::int64_t{1} << 53U;
    if constexpr (requires { decimal.template ToInteger<std::int64_t>(); }) {
        const auto number = decimal.template ToInteger<std::int64_t>();
        if (number.ok() && *number >= -exact && *number <= exact && scale >= 0 &&
            static_cast<std::size_t>(scale) < powers.size()) {
            return static_cast<double>(*number) / powers[static_cast<std::size_t>(scale)];
        }
    }
    const std::string text = decimal.ToString(scale);
    double value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

} // namespace rtrain::detail
