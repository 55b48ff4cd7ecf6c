// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoint: a directory with everything needed to resume. Corresponds to Ray Train's class of
/// that name.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/location.hpp>

#include <boost/json/object.hpp>

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace rtrain {

/// A handle to a directory, on this machine or on a storage service; copying it copies no files.
class Checkpoint {
public:
    /// Location of the files: a path or a URI ("s3://bucket/run/checkpoint_000001"), or, if
    /// `filesystem` is set, a path in that file system.
    std::filesystem::path path;
    /// File system of `path`; unset: this machine, or as a URI specifies.
    std::optional<storage::AnyFilesystem> filesystem{};

    explicit Checkpoint(std::filesystem::path directory,
                        std::optional<storage::AnyFilesystem> files = std::nullopt)
        : path(std::move(directory)), filesystem(std::move(files)) {}

    /// A checkpoint of files that the user has written, locally or on a storage service. Throws
    /// CheckpointError [RT-K1] if the directory does not exist.
    [[nodiscard]] static Checkpoint
    from_directory(const std::filesystem::path& directory,
                   std::optional<storage::AnyFilesystem> files = std::nullopt);

    /// Returns a local directory with the files; treat it as read-only. From a storage service, the
    /// processes of a node download them once. While a copy of this object lives, the download is
    /// kept, and a local checkpoint is not deleted by its run.
    [[nodiscard]] const std::filesystem::path& as_directory() const;

    /// Copies the files into `target`, which is created; returns it. Without a target, into a new
    /// directory in the temporary one.
    std::filesystem::path to_directory(std::filesystem::path target = {}) const;

    /// Returns what set_metadata() stored; empty if nothing was. Throws CheckpointError [RT-K2] if
    /// the file is damaged.
    [[nodiscard]] boost::json::object metadata() const;
    /// Replaces the metadata.
    void set_metadata(const boost::json::object& metadata) const;
    /// Adds to the metadata, replacing equal keys.
    void update_metadata(const boost::json::object& metadata) const;

    /// The file system, and the path in it.
    [[nodiscard]] storage::Location location() const;
    /// The path or URI, for messages.
    [[nodiscard]] std::string uri() const;

    friend bool operator==(const Checkpoint& left, const Checkpoint& right) {
        return left.uri() == right.uri();
    }

    /// Ray Train's name.
    static constexpr const char* metadata_file = ".metadata.json";

private:
    /// State that copies of a handle share.
    struct Use {
        std::mutex mutex;
        std::filesystem::path directory;
        std::shared_ptr<void> keep; ///< held while the directory must stay
    };
    std::shared_ptr<Use> use_ = std::make_shared<Use>();
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/checkpoint/checkpoint_definitions.hpp>
#endif
