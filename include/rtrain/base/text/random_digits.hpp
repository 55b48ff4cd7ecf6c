// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random digits for names: process ids and clocks are not unique across containers. Cost tier 0:
/// std only.
#pragma once

#include <array>
#include <cstdio>
#include <random>
#include <string>

namespace rtrain::detail {

/// Returns eight random hexadecimal digits from the system.
[[nodiscard]] inline std::string random_digits() {
    std::random_device random;
    std::array<char, 9> text{};
    std::snprintf(text.data(), text.size(), "%08x", random());
    return text.data();
}

} // namespace rtrain::detail
