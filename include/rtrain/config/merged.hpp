// SPDX-License-Identifier: Apache-2.0
/// @file
/// merged(): two JSON objects as one. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/config/run_info.hpp>

namespace rtrain::detail {

/// Returns `config` with the members of `others`, which replace those of equal names.
[[nodiscard]] inline Config merged(Config config, const Config& others) {
    for (const auto& item : others) {
        config[item.key()] = item.value();
    }
    return config;
}

} // namespace rtrain::detail
