// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tracker options with defaults from the environment. Cost tier 0: std only.
#pragma once

#include <cstdlib>
#include <string>

namespace rtrain::track {

/// `given`; if empty, the environment's `variable`; if that is also empty, `otherwise`.
[[nodiscard]] inline std::string option_or(const std::string& given, const char* variable,
                                           const std::string& otherwise) {
    const char* const value = std::getenv(variable);
    return !given.empty() ? given : value != nullptr && *value != '\0' ? value : otherwise;
}

} // namespace rtrain::track
