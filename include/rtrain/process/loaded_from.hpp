// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which file a function was loaded from. Cost tier 0: std only.
#pragma once

#include <string>

#include <dlfcn.h>

namespace rtrain {

/// " (/usr/lib/libm.so.6)"; "" when that is not known.
[[nodiscard]] inline std::string from(const void* function) {
    Dl_info place{};
    const bool known = ::dladdr(function, &place) != 0 && place.dli_fname != nullptr;
    return known ? std::string(" (") + place.dli_fname + ")" : "";
}

} // namespace rtrain
