// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a run may be called: a directory's name on any file system and storage service. Cost tier
/// 0: std only.
#pragma once

#include <string_view>

namespace rtrain::detail {

/// For messages.
inline constexpr const char* expected_run_name =
    "expected letters, digits, '.', '_', '-', not beginning with '.'";

[[nodiscard]] constexpr bool is_run_name(std::string_view name) noexcept {
    constexpr std::string_view allowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return name.find_first_not_of(allowed) == std::string_view::npos && !name.starts_with('.');
}

} // namespace rtrain::detail
