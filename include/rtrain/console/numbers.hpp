// SPDX-License-Identifier: Apache-2.0
/// @file
/// Formats numbers for people. Cost tier 0: std only.
#pragma once

#include <rtrain/base/text/c_locale.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rtrain::console {

/// Like printf's "%.*g".
[[nodiscard]] inline std::string rounded(double number, int digits) {
    return rtrain::detail::print("%.*g", digits, number);
}

/// "1,234,567".
[[nodiscard]] inline std::string grouped(std::int64_t number) {
    std::string text = std::to_string(number);
    const std::size_t first = number < 0 ? 1 : 0;
    for (std::size_t at = text.size(); at > first + 3;) {
        at -= 3;
        text.insert(at, ",");
    }
    return text;
}

/// "12.3 M" and the like, with three digits; followed by `unit`: "4.80 MB".
[[nodiscard]] inline std::string scaled(double number, const char* unit) {
    constexpr std::array<const char*, 7> prefixes{"", "k", "M", "G", "T", "P", "E"};
    std::size_t prefix = 0;
    while (std::abs(number) >= 999.5 && prefix + 1 < prefixes.size()) {
        number /= 1000;
        ++prefix;
    }
    const int decimals = prefix == 0 || std::abs(number) >= 99.95 ? 0
                         : std::abs(number) >= 9.995              ? 1
                                                                  : 2;
    return rtrain::detail::print("%.*f %s%s", decimals, number, prefixes[prefix], unit);
}

/// "01:05", "1:01:05".
[[nodiscard]] inline std::string duration(double seconds) {
    constexpr double most = 1e15;
    const auto whole =
        static_cast<long long>(std::isfinite(seconds) ? std::clamp(seconds, 0.0, most) : 0);
    const long long hours = whole / 3600;
    return hours > 0
               ? rtrain::detail::print("%lld:%02lld:%02lld", hours, whole / 60 % 60, whole % 60)
               : rtrain::detail::print("%02lld:%02lld", whole / 60, whole % 60);
}

} // namespace rtrain::console
