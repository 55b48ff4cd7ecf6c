// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads metrics from reports. Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/config/run_info.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace rtrain::tune {

/// The value under a name; "a/b" reads a nested value unless there is a member "a/b". Null if
/// absent.
[[nodiscard]] inline const boost::json::value* find(const Config& report,
                                                    std::string_view name) noexcept {
    if (const auto* const whole = report.if_contains(name)) {
        return whole;
    }
    for (std::size_t slash = name.find('/'); slash != std::string_view::npos;
         slash = name.find('/', slash + 1)) {
        const auto* const outer = report.if_contains(name.substr(0, slash));
        if (outer != nullptr && outer->is_object()) {
            if (const auto* const inner = find(outer->get_object(), name.substr(slash + 1))) {
                return inner;
            }
        }
    }
    return nullptr;
}

/// The number under a name, NaN and infinities included; none when the report has no such number.
[[nodiscard]] inline std::optional<double> number_at(const Config& report,
                                                     std::string_view name) noexcept {
    const auto* const value = find(report, name);
    return value == nullptr ? std::nullopt : json::number(*value);
}

namespace internal {

/// The names in a report, for messages.
[[nodiscard]] inline std::string names_in_report(const Config& report) {
    std::string names;
    for (const auto& item : report) {
        names += (names.empty() ? "" : ", ") + std::string(item.key());
    }
    return names.empty() ? "nothing" : names;
}

} // namespace internal
} // namespace rtrain::tune
