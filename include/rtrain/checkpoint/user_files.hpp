// SPDX-License-Identifier: Apache-2.0
/// @file
/// The files of the directories that ranks report, brought together in one checkpoint.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/checked_file.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/contents.hpp>
#include <rtrain/checkpoint/validation_record.hpp>
#include <rtrain/storage/file.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <vector>

namespace rtrain::checkpoint {

/// The names of all files under a directory, sorted; without what belongs to rtrain.
[[nodiscard]] inline std::vector<std::string>
names_of_files(const std::filesystem::path& directory) {
    std::vector<std::string> names;
    std::error_code error;
    for (std::filesystem::recursive_directory_iterator at(directory, error), end;
         !error && at != end; at.increment(error)) {
        std::error_code gone;
        if (at->is_regular_file(gone)) {
            names.push_back(at->path().lexically_relative(directory).generic_string());
        }
    }
    storage::require(error, "list", directory);
    std::erase_if(names, [](const std::string& name) {
        return name == Checkpoint::metadata_file || name == validation_file ||
               name == manifest_file ||
               std::filesystem::path(name).filename().string().starts_with(
                   storage::temporary_prefix);
    });
    std::sort(names.begin(), names.end());
    return names;
}

/// Lists the files under a directory that `known` does not list.
[[nodiscard]] inline Contents unlisted_files(const std::filesystem::path& directory,
                                             const Contents& known) {
    std::set<std::string> listed;
    for (const FileRecord& file : known.files) {
        listed.insert(file.name);
    }
    Contents contents;
    for (const std::string& name : names_of_files(directory)) {
        if (!listed.contains(name)) {
            contents.files.push_back(record_of(directory, name));
        }
    }
    return contents;
}

/// Copies files, durably, with the directories above them.
[[nodiscard]] inline Contents copy_files(const std::filesystem::path& from,
                                         const std::vector<std::string>& names,
                                         const std::filesystem::path& to) {
    Contents contents;
    std::vector<char> buffer(3 * ChunkSums::chunk);
    for (const std::string& name : names) {
        storage::create_directories((to / name).parent_path());
        storage::InputFile in(std::filesystem::canonical(from / name));
        CheckedFile out(to, name);
        while (const std::size_t got = in.read(buffer.data(), buffer.size())) {
            out.write(buffer.data(), got);
        }
        contents.files.push_back(out.finish());
    }
    return contents;
}

} // namespace rtrain::checkpoint
