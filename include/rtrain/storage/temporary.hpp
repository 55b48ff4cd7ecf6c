// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where temporary files go: $TMPDIR, or /tmp.
#pragma once

#include <rtrain/base/error.hpp>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace rtrain::storage {

/// Throws ConfigError [RT-C22] when it is no directory.
[[nodiscard]] inline std::filesystem::path temporary_directory() {
    std::error_code error;
    auto directory = std::filesystem::temp_directory_path(error);
    if (!error) {
        return directory;
    }
    for (const char* const variable : std::array{"TMPDIR", "TMP", "TEMP", "TEMPDIR"}) {
        if (const char* const value = std::getenv(variable)) { // the first that is set counts
            throw ConfigError("RT-C22",
                              detail::concat(variable, " is \"", value, "\": ", error.message(),
                                             "; make that directory, or set ", variable,
                                             " to one that is there"));
        }
    }
    throw ConfigError("RT-C22", detail::concat("/tmp: ", error.message(),
                                               "; set TMPDIR to a directory that is there"));
}

} // namespace rtrain::storage
