// SPDX-License-Identifier: Apache-2.0
/// @file
/// Combines the files of the directories that ranks report into one checkpoint.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/checked_file.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/checkpoint/layout/download.hpp>
#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/validation_record.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/safe_name.hpp>
#include <rtrain/storage/location.hpp>
#include <rtrain/storage/node/node_cache.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

namespace rtrain::checkpoint {

namespace internal {

[[nodiscard]] inline CheckpointError not_kept(const std::filesystem::path& directory,
                                              const std::string& name, const char* why) {
    return {"RT-K14", detail::concat("\"", name, "\" in ", directory.string(), ' ', why)};
}

/// True if a file of this name is rtrain's own, or is being written. Throws CheckpointError
/// [RT-K14] for a manifest that rtrain did not write.
[[nodiscard]] inline bool is_of_rtrain(const std::filesystem::path& directory,
                                       const std::string& name) {
    if (name == manifest_file && !is_manifest(storage::read_file(directory / name))) {
        throw not_kept(directory, name,
                       "has the name of the list that rtrain writes into each checkpoint; give "
                       "your file a different name");
    }
    return name == Checkpoint::metadata_file || name == validation_file || name == manifest_file ||
           std::filesystem::path(name).filename().string().starts_with(storage::temporary_prefix);
}

/// Reading a checkpoint expects its values under that name. Throws CheckpointError [RT-K14].
inline void require_object(const std::filesystem::path& directory) {
    try {
        (void)json::parse_object(storage::read_file(directory / values_file));
    } catch (const std::invalid_argument&) {
        throw not_kept(directory, values_file,
                       "has the name of the values of a state, but is not a JSON object; give your "
                       "file a different name");
    }
}

template <class File>
void copy_file(const std::filesystem::path& from, File& to) {
    std::vector<char> buffer(3 * ChunkSums::chunk);
    storage::InputFile in(std::filesystem::canonical(from));
    while (const std::size_t got = in.read(buffer.data(), buffer.size())) {
        to.write(buffer.data(), got);
    }
}

} // namespace internal

/// Returns the names of all files under a directory, sorted, without rtrain's own. Links to files
/// count as files. Throws CheckpointError [RT-K14] for anything that a checkpoint would silently
/// lack.
[[nodiscard]] inline std::vector<std::string>
names_of_files(const std::filesystem::path& directory) {
    using std::filesystem::file_type;
    std::vector<std::string> names;
    std::error_code error;
    for (std::filesystem::recursive_directory_iterator at(directory, error), end;
         !error && at != end; at.increment(error)) {
        std::error_code gone;
        const auto type = at->symlink_status(gone).type();
        const auto name = at->path().lexically_relative(directory).generic_string();
        if (type == file_type::directory || type == file_type::not_found ||
            internal::is_of_rtrain(directory, name)) {
            continue;
        }
        if (!at->is_regular_file(gone)) {
            throw internal::not_kept(
                directory, name,
                type == file_type::symlink
                    ? "is a symbolic link that does not lead to a file; replace it by its target"
                    : "is neither a file nor a directory; remove it");
        }
        if (name == values_file) {
            internal::require_object(directory);
        }
        names.push_back(name);
    }
    storage::require(error, "list", directory);
    std::sort(names.begin(), names.end());
    return names;
}

/// Lists the files under a directory that `known` does not list. Throws CheckpointError [RT-K14]
/// for those that a checkpoint cannot contain.
[[nodiscard]] inline Contents unlisted_files(const std::filesystem::path& directory,
                                             const Contents& known) {
    std::set<std::string> listed;
    for (const FileRecord& file : known.files) {
        listed.insert(file.name);
    }
    Contents contents;
    for (const std::string& name : names_of_files(directory)) {
        if (!listed.contains(name)) {
            if (!is_plain_file(directory, name)) {
                throw internal::not_kept(directory, name,
                                         "is a symbolic link, or has a name that cannot be kept on "
                                         "every file system; copy or rename the file");
            }
            contents.files.push_back(record_of(directory, name));
        }
    }
    return contents;
}

/// Lists the files of a directory that becomes a checkpoint in place. A service's are downloaded
/// each time: the directory may have been reported before, with different files.
[[nodiscard]] inline Contents contents_in_place(const storage::Location& at) {
    if (at.filesystem.is_local()) {
        return unlisted_files(at.path, {});
    }
    static std::atomic<std::uint64_t> count{0};
    const auto version =
        detail::concat("in place ", ::getpid(), ' ', ++count, ' ',
                       std::chrono::steady_clock::now().time_since_epoch().count());
    const auto copy =
        storage::copy_to_node(at.filesystem, at.path, internal::files_at(at), version);
    return unlisted_files(copy.directory(), {});
}

/// Contents of files, by name.
using FilesInMemory = std::map<std::string, std::string>;

/// Writes files durably. Throws CheckpointError [RT-K14] for a name that a checkpoint cannot have.
[[nodiscard]] inline Contents write_files(const FilesInMemory& files,
                                          const std::filesystem::path& to) {
    Contents contents;
    for (const auto& [name, text] : files) {
        if (!is_safe_name(name)) {
            throw internal::not_kept(to, name, "is not valid on every file system; rename it");
        }
        storage::create_directories((to / name).parent_path());
        CheckedFile out(to, name);
        out.write(text);
        contents.files.push_back(out.finish());
    }
    return contents;
}

/// Copies files, durably, with the directories above them.
[[nodiscard]] inline Contents copy_files(const std::filesystem::path& from,
                                         const std::vector<std::string>& names,
                                         const std::filesystem::path& to) {
    Contents contents;
    for (const std::string& name : names) {
        storage::create_directories((to / name).parent_path());
        CheckedFile out(to, name);
        internal::copy_file(from / name, out);
        contents.files.push_back(out.finish());
    }
    return contents;
}

/// Copies files into the page cache, which does not wait for the disk; sync_files() must follow.
inline void copy_to_cache(const std::filesystem::path& from, const std::vector<std::string>& names,
                          const std::filesystem::path& to) {
    for (const std::string& name : names) {
        storage::create_directories((to / name).parent_path());
        storage::OutputFile out(to / name);
        internal::copy_file(from / name, out);
        out.close();
    }
}

/// Makes files durable, and lists them.
[[nodiscard]] inline Contents sync_files(const std::filesystem::path& directory,
                                         const std::vector<std::string>& names) {
    Contents contents;
    for (const std::string& name : names) {
        storage::OutputFile(directory / name, storage::OutputFile::Mode::append).sync();
        contents.files.push_back(record_of(directory, name));
    }
    return contents;
}

} // namespace rtrain::checkpoint
