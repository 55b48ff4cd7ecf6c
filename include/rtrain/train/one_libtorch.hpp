// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether the libtorch that runs is the one that the program was compiled with.
#pragma once

#include <rtrain/base/error.hpp>

#include <ATen/Version.h>
#include <torch/version.h>

#include <string>
#include <string_view>

namespace rtrain::detail {

/// Throws ConfigError [RT-C43] when the loader has found a libtorch of another version than the
/// headers were of: another one on LD_LIBRARY_PATH, or that of a Python process. Their classes
/// differ in layout, so that what follows would be wrong numbers or a crash. A third number that
/// differs is taken, because such versions mend only.
inline void require_one_libtorch() {
    const std::string settings = at::show_config();
    constexpr std::string_view key = "TORCH_VERSION=";
    const auto found = settings.find(key);
    if (found == std::string::npos) { // a build that does not say
        return;
    }
    const std::string rest = settings.substr(found + key.size());
    const std::string loaded = rest.substr(0, rest.find_first_of(", \n"));
    if (loaded.rfind(concat(TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR, "."), 0) != 0) {
        throw ConfigError(
            "RT-C43",
            concat("the program was compiled with libtorch " TORCH_VERSION ", but runs with ",
                   loaded,
                   ", which has been found first; take its directory out of LD_LIBRARY_PATH, or "
                   "compile the program with it"));
    }
}

} // namespace rtrain::detail
