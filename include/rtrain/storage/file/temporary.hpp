// SPDX-License-Identifier: Apache-2.0
/// @file
/// The directory of temporary files: $TMPDIR, or /tmp.
#pragma once

#include <rtrain/base/error.hpp>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

namespace rtrain::storage {

/// Throws ConfigError [RT-C22] if it is not a directory, or no file can be created in it.
[[nodiscard]] inline std::filesystem::path temporary_directory() {
    std::error_code error;
    auto directory = std::filesystem::temp_directory_path(error);
    if (!error && ::faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
        error.assign(errno, std::generic_category());
    }
    if (!error) {
        return directory;
    }
    for (const char* const variable : std::array{"TMPDIR", "TMP", "TEMP", "TEMPDIR"}) {
        if (const char* const value = std::getenv(variable)) { // the first that is set is used
            throw ConfigError("RT-C22",
                              detail::concat(variable, " is \"", value, "\": ", error.message(),
                                             "; set ", variable,
                                             " to an existing directory in which this user may "
                                             "create files"));
        }
    }
    throw ConfigError("RT-C22", detail::concat("/tmp: ", error.message(),
                                               "; set TMPDIR to an existing directory in which "
                                               "this user may create files"));
}

} // namespace rtrain::storage
