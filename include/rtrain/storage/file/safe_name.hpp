// SPDX-License-Identifier: Apache-2.0
/// @file
/// Valid names of files in a checkpoint. A manifest comes from storage that others may write to; a
/// name in it must not lead out of the checkpoint's directory, on any file system that the
/// checkpoint may be copied to. Cost tier 0: std only.
#pragma once

#include <rtrain/base/text/c_locale.hpp>
#include <rtrain/base/text/plain_text.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace rtrain::checkpoint {

/// Maximum bytes of a whole name: S3's limit for a key.
inline constexpr std::size_t max_name_size = 1024;
/// Maximum bytes of a name between two '/': Linux's limit.
inline constexpr std::size_t max_name_part_size = 255;

namespace names {

[[nodiscard]] inline std::string lower_case(std::string_view text) {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(), rtrain::detail::lower);
    return lower;
}

/// True for devices on Windows, with any extension: "con", "NUL.txt", "com1".
[[nodiscard]] inline bool is_device(std::string_view part) {
    std::string stem = lower_case(part.substr(0, std::min(part.find('.'), part.size())));
    stem.erase(stem.find_last_not_of(' ') + 1);
    constexpr std::array<std::string_view, 6> devices{"con", "prn",    "aux",
                                                      "nul", "conin$", "conout$"};
    const bool numbered = stem.size() == 4 &&
                          (stem.starts_with("com") || stem.starts_with("lpt")) &&
                          std::isdigit(static_cast<unsigned char>(stem[3])) != 0;
    return numbered || std::find(devices.begin(), devices.end(), stem) != devices.end();
}

[[nodiscard]] inline bool is_safe_part(std::string_view part) {
    return !part.empty() && part.size() <= max_name_part_size && part.back() != '.' &&
           part.back() != ' ' && part.front() != ' ' && !(part.size() > 1 && part[1] == ':') &&
           !is_device(part); // "C:" is a drive
}

} // namespace names

/// True for a relative name with '/' between its parts, such as "state.safetensors" or "rank
/// 3/größe.json". False for everything that is or may be read as something else: absolute names,
/// drives, empty parts, "." and "..", backslashes, control characters, broken UTF-8, parts that
/// begin or end with a space or end with a dot (some systems drop these), devices such as "con",
/// and names that are too long.
[[nodiscard]] inline bool is_safe_name(std::string_view name) {
    if (name.size() > max_name_size || !is_plain_text(name) ||
        name.find('\\') != std::string_view::npos) {
        return false;
    }
    for (;;) {
        const std::size_t end = name.find('/');
        if (!names::is_safe_part(name.substr(0, end))) {
            return false;
        }
        if (end == std::string_view::npos) {
            return true;
        }
        name.remove_prefix(end + 1);
    }
}

/// Finds two of `names`, or a name and a directory of another, that some file systems treat as the
/// same: equal except for the case of ASCII letters. nullopt if there are none.
[[nodiscard]] inline std::optional<std::pair<std::string, std::string>>
find_name_clash(std::span<const std::string> names) {
    std::map<std::string, std::string> files;       // in lower case -> as written
    std::map<std::string, std::string> directories; // as above
    for (const std::string& name : names) {
        const std::string lower = names::lower_case(name);
        if (const auto [other, added] = files.emplace(lower, name); !added) {
            return {{other->second, name}};
        }
        for (std::size_t end = name.find('/'); end != std::string::npos;
             end = name.find('/', end + 1)) {
            const std::string directory = name.substr(0, end);
            const auto [other, added] = directories.emplace(lower.substr(0, end), directory);
            if (!added && other->second != directory) {
                return {{other->second, directory}};
            }
        }
    }
    for (const auto& [lower, directory] : directories) {
        if (const auto file = files.find(lower); file != files.end()) {
            return {{file->second, directory}};
        }
    }
    return std::nullopt;
}

/// True if `directory`/`name` is a regular file that is reached without following a symbolic link
/// below `directory`.
[[nodiscard]] inline bool is_plain_file(const std::filesystem::path& directory,
                                        std::string_view name) {
    if (!is_safe_name(name)) {
        return false;
    }
    std::filesystem::path path = directory;
    std::error_code error;
    auto type = std::filesystem::file_type::directory;
    for (const auto& part : std::filesystem::path(name)) {
        if (type != std::filesystem::file_type::directory) {
            return false;
        }
        path /= part;
        type = std::filesystem::symlink_status(path, error).type();
    }
    return type == std::filesystem::file_type::regular;
}

} // namespace rtrain::checkpoint
