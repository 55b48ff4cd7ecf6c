// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoint: a directory that holds what is needed to go on. Ray Train's class of that name.
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
    /// Where the files are: a path or a URI ("s3://bucket/run/checkpoint_000001"), or, when
    /// `filesystem` is set, a path as that file system knows it.
    std::filesystem::path path;
    /// Where `path` is; unset: on this machine, or as a URI says.
    std::optional<storage::AnyFilesystem> filesystem{};

    explicit Checkpoint(std::filesystem::path directory,
                        std::optional<storage::AnyFilesystem> files = std::nullopt)
        : path(std::move(directory)), filesystem(std::move(files)) {}

    /// A checkpoint of files that the user has written, here or on a storage service. Throws
    /// CheckpointError [RT-K1] when there is no such directory.
    [[nodiscard]] static Checkpoint
    from_directory(const std::filesystem::path& directory,
                   std::optional<storage::AnyFilesystem> files = std::nullopt);

    /// A local directory with the files, to be read only. From a storage service, the processes of
    /// a node download them once; the copy is kept, and a local checkpoint is not deleted by its
    /// run, while a copy of this object lives.
    [[nodiscard]] const std::filesystem::path& as_directory() const;

    /// Copies the files into `target`, which is created; returns it. Without a target, into a new
    /// directory under the temporary one.
    std::filesystem::path to_directory(std::filesystem::path target = {}) const;

    /// What set_metadata() stored; empty when nothing was. Throws CheckpointError [RT-K2] when the
    /// file is damaged.
    [[nodiscard]] boost::json::object metadata() const;
    /// Replaces the metadata.
    void set_metadata(const boost::json::object& metadata) const;
    /// Adds to the metadata; what is there under the same keys is replaced.
    void update_metadata(const boost::json::object& metadata) const;

    /// The file system, and the path in it.
    [[nodiscard]] storage::Location location() const;
    /// For messages: the path or URI.
    [[nodiscard]] std::string uri() const;

    friend bool operator==(const Checkpoint& left, const Checkpoint& right) {
        return left.uri() == right.uri();
    }

    /// Ray's name for it.
    static constexpr const char* metadata_file = ".metadata.json";

private:
    /// What copies of a handle share.
    struct Use {
        std::mutex mutex;
        std::filesystem::path directory;
        std::shared_ptr<void> keep; ///< while the directory is to stay
    };
    std::shared_ptr<Use> use_ = std::make_shared<Use>();
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/checkpoint/checkpoint_definitions.hpp>
#endif
