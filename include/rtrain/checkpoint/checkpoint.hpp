// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoint: a directory that holds what is needed to go on. Ray Train's class of that name.
#pragma once

#include <rtrain/error.hpp>
#include <rtrain/json.hpp>
#include <rtrain/storage/file.hpp>

#include <boost/json/object.hpp>

#include <filesystem>
#include <utility>

namespace rtrain {

/// A handle to a directory; copying it copies no files.
class Checkpoint {
public:
    /// Where the files are.
    std::filesystem::path path;

    explicit Checkpoint(std::filesystem::path directory) : path(std::move(directory)) {}

    /// A checkpoint of files that the user has written. Throws CheckpointError [RT-K1] when there
    /// is no such directory.
    [[nodiscard]] static Checkpoint from_directory(const std::filesystem::path& directory) {
        if (!std::filesystem::is_directory(directory)) {
            throw CheckpointError(
                "RT-K1", detail::concat(directory.string(), " is no directory, so no checkpoint"));
        }
        return Checkpoint(std::filesystem::absolute(directory));
    }

    /// A local directory with the files, to be read only.
    [[nodiscard]] const std::filesystem::path& as_directory() const {
        (void)from_directory(path);
        return path;
    }

    /// Copies the files into `target`, which is created; returns it.
    std::filesystem::path to_directory(const std::filesystem::path& target) const {
        std::filesystem::create_directories(target);
        std::filesystem::copy(as_directory(), target,
                              std::filesystem::copy_options::recursive |
                                  std::filesystem::copy_options::overwrite_existing);
        return target;
    }

    /// What set_metadata() stored; empty when nothing was.
    [[nodiscard]] boost::json::object metadata() const {
        const auto file = path / metadata_file;
        if (!std::filesystem::exists(file)) {
            return {};
        }
        return json::parse(storage::read_file(file)).as_object();
    }
    /// Replaces the metadata.
    void set_metadata(const boost::json::object& metadata) const {
        storage::replace_file(path / metadata_file, json::serialize(metadata));
    }

    friend bool operator==(const Checkpoint& left, const Checkpoint& right) {
        return left.path == right.path;
    }

    /// Ray's name for it.
    static constexpr const char* metadata_file = ".metadata.json";
};

} // namespace rtrain
