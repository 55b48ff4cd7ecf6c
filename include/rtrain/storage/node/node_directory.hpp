// SPDX-License-Identifier: Apache-2.0
/// @file
/// A directory below TMPDIR shared by the processes of a node, for all runs of this user.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/temporary.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::storage {

/// Created if missing, accessible only to this user. Throws ConfigError [RT-C22], StorageError
/// [RT-S14].
[[nodiscard]] inline std::filesystem::path node_directory() {
    auto directory = temporary_directory() / ("rtrain-cache-" + std::to_string(::geteuid()));
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
        throw system_error("create", directory);
    }
    struct stat status = {};
    if (::lstat(directory.c_str(), &status) != 0) {
        throw system_error("stat", directory);
    }
    if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077U) != 0) {
        throw StorageError("RT-S14",
                           detail::concat(directory.string(),
                                          " must be owned by this user, with no access for others; "
                                          "remove it, or set TMPDIR to a different directory"));
    }
    return directory;
}

/// Returns a file name derived from any text.
[[nodiscard]] inline std::string hash_text(std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325U; // FNV-1a
    for (const char c : text) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
    return digits.data();
}

} // namespace rtrain::storage
