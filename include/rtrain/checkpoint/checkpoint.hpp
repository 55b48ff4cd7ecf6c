// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoint: a directory that holds what is needed to go on. Ray Train's class of that name.
#pragma once

#include <rtrain/checkpoint/download.hpp>
#include <rtrain/checkpoint/sealed_json.hpp>
#include <rtrain/checkpoint/verify.hpp>
#include <rtrain/error.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/storage/lock.hpp>
#include <rtrain/storage/temporary.hpp>

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
    std::optional<storage::AnyFilesystem> filesystem{};

    explicit Checkpoint(std::filesystem::path directory,
                        std::optional<storage::AnyFilesystem> files = std::nullopt)
        : path(std::move(directory)), filesystem(std::move(files)) {}

    /// A checkpoint of files that the user has written, here or on a storage service. Throws
    /// CheckpointError [RT-K1] when there is no such directory.
    [[nodiscard]] static Checkpoint
    from_directory(const std::filesystem::path& directory,
                   std::optional<storage::AnyFilesystem> files = std::nullopt) {
        Checkpoint checkpoint(directory, std::move(files));
        const storage::Location at = checkpoint.location();
        if (at.filesystem.is_local()) {
            checkpoint.path = std::filesystem::absolute(at.path);
        }
        const bool there = at.filesystem.is_local() ? std::filesystem::is_directory(at.path)
                                                    : at.filesystem.exists(at.path);
        if (!there) {
            throw CheckpointError(
                "RT-K1", detail::concat(checkpoint.uri(), " is no directory, so no checkpoint"));
        }
        return checkpoint;
    }

    /// A local directory with the files, to be read only. From a storage service, the processes of
    /// a node download them once; the copy is kept, and a local checkpoint is not deleted by its
    /// run, while a copy of this object lives.
    [[nodiscard]] const std::filesystem::path& as_directory() const {
        const std::scoped_lock lock(use_->mutex);
        if (use_->directory.empty()) {
            const storage::Location at = location();
            if (at.filesystem.is_local()) {
                (void)from_directory(path, filesystem);
                use_->keep = std::make_shared<storage::FileUse>(std::filesystem::path(at.path) /
                                                                checkpoint::manifest_file);
                use_->directory = at.path;
            } else {
                const auto copy = std::make_shared<storage::NodeCopy>(checkpoint::download(at));
                use_->directory = copy->directory();
                use_->keep = copy;
            }
        }
        return use_->directory;
    }

    /// Copies the files into `target`, which is created; returns it. Without a target, into a new
    /// directory under the temporary one.
    std::filesystem::path to_directory(std::filesystem::path target = {}) const {
        if (target.empty()) {
            std::string pattern =
                (storage::temporary_directory() / "checkpoint_tmp_XXXXXX").string();
            if (::mkdtemp(pattern.data()) == nullptr) {
                throw storage::system_error("create", pattern);
            }
            target = pattern;
        }
        storage::create_directories(target);
        std::error_code error;
        std::filesystem::copy(as_directory(), target,
                              std::filesystem::copy_options::recursive |
                                  std::filesystem::copy_options::overwrite_existing,
                              error);
        storage::require(error, "copy a checkpoint to", target);
        return target;
    }

    /// What set_metadata() stored; empty when nothing was. Throws CheckpointError [RT-K2] when the
    /// file is damaged.
    [[nodiscard]] boost::json::object metadata() const {
        const storage::Location at = location();
        const std::string file = at.path + "/" + metadata_file;
        if (!at.filesystem.exists(file)) {
            return {};
        }
        try {
            return checkpoint::unseal(at.filesystem.read(file));
        } catch (const std::invalid_argument& error) {
            throw CheckpointError(
                "RT-K2", detail::concat(at.filesystem.uri(file), " is damaged: ", error.what()));
        }
    }
    /// Replaces the metadata.
    void set_metadata(const boost::json::object& metadata) const {
        const storage::Location at = location();
        at.filesystem.write(at.path + "/" + metadata_file, checkpoint::seal(metadata));
    }
    /// Adds to the metadata; what is there under the same keys is replaced.
    void update_metadata(const boost::json::object& metadata) const {
        boost::json::object all = this->metadata();
        for (const auto& item : metadata) {
            all[item.key()] = item.value();
        }
        set_metadata(all);
    }

    /// The file system, and the path in it.
    [[nodiscard]] storage::Location location() const {
        return filesystem ? storage::Location{*filesystem, path.string()} : storage::locate(path);
    }
    /// For messages: the path or URI.
    [[nodiscard]] std::string uri() const {
        return filesystem ? filesystem->uri(path.string()) : path.string();
    }

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
