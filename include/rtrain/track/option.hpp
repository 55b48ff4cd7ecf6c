// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of trackers that may come from the environment. Cost tier 0: std only.
#pragma once

#include <cstdlib>
#include <string>

namespace rtrain::track {

/// `given`; when that is empty, the value of the environment's `variable`; when that is empty, too,
/// `otherwise`.
[[nodiscard]] inline std::string option_or(const std::string& given, const char* variable,
                                           const std::string& otherwise) {
    const char* const value = std::getenv(variable);
    return !given.empty() ? given : value != nullptr && *value != '\0' ? value : otherwise;
}

} // namespace rtrain::track
