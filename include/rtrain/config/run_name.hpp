// SPDX-License-Identifier: Apache-2.0
/// @file
/// Valid run names: directory names on any file system and storage service. Cost tier 0: std only.
#pragma once

#include <cstddef>
#include <string_view>

namespace rtrain::detail {

/// Used in messages.
inline constexpr const char* expected_run_name =
    "expected at most 200 letters, digits, '.', '_', '-', not beginning with '.' or '-'";

[[nodiscard]] constexpr bool is_run_name(std::string_view name) noexcept {
    constexpr std::string_view allowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    constexpr std::size_t longest = 200; // file systems allow 255, temporary names are longer
    return name.find_first_not_of(allowed) == std::string_view::npos && !name.starts_with('.') &&
           !name.starts_with('-') && name.size() <= longest;
}

} // namespace rtrain::detail
