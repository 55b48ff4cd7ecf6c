// SPDX-License-Identifier: Apache-2.0
/// @file
/// The file that a function was loaded from, and its address in that file. Cost tier 0: std only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <dlfcn.h>
#include <sys/stat.h>

namespace rtrain {

/// " (/usr/lib/libm.so.6)"; "" if unknown.
[[nodiscard]] inline std::string from(const void* function) {
    Dl_info place{};
    const bool known = ::dladdr(function, &place) != 0 && place.dli_fname != nullptr;
    return known ? std::string(" (") + place.dli_fname + ")" : "";
}

/// A function's place in its file.
struct PlaceInFile {
    std::string file;          ///< distinguishes builds: size and time of modification
    std::uint64_t address = 0; ///< relative to the load address
};

/// Empty if unknown.
[[nodiscard]] inline std::optional<PlaceInFile> place_in_file(const void* function) {
    Dl_info place{};
    struct stat file {};
    if (::dladdr(function, &place) == 0 || place.dli_fname == nullptr ||
        ::stat(place.dli_fname, &file) != 0) {
        return std::nullopt;
    }
    return PlaceInFile{std::to_string(file.st_size) + " " + std::to_string(file.st_mtim.tv_sec) +
                           "." + std::to_string(file.st_mtim.tv_nsec),
                       reinterpret_cast<std::uintptr_t>(function) -
                           reinterpret_cast<std::uintptr_t>(place.dli_fbase)};
}

} // namespace rtrain
