// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door checkpoint.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/download.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/format/checksummed_json.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/lock.hpp>
#include <rtrain/storage/file/temporary.hpp>
#include <rtrain/storage/locate.hpp>

#include <cstdlib>
#include <system_error>

namespace rtrain {

RTRAIN_DOOR Checkpoint Checkpoint::from_directory(const std::filesystem::path& directory,
                                                  std::optional<storage::AnyFilesystem> files) {
    Checkpoint checkpoint(directory, std::move(files));
    const storage::Location at = checkpoint.location();
    if (at.filesystem.is_local()) {
        checkpoint.path = std::filesystem::absolute(at.path);
    }
    const bool there = at.filesystem.is_local() ? std::filesystem::is_directory(at.path)
                                                : at.filesystem.exists(at.path);
    if (!there) {
        throw CheckpointError(
            "RT-K1", detail::concat(checkpoint.uri(), " is not a directory, so not a checkpoint"));
    }
    return checkpoint;
}

RTRAIN_DOOR const std::filesystem::path& Checkpoint::as_directory() const {
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

RTRAIN_DOOR std::filesystem::path Checkpoint::to_directory(std::filesystem::path target) const {
    if (target.empty()) {
        std::string pattern = (storage::temporary_directory() / "checkpoint_tmp_XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) {
            throw storage::system_error("create", pattern);
        }
        target = pattern;
    }
    storage::create_directories(target);
    std::error_code error;
    const auto& from = as_directory();
    if (std::filesystem::exists(from / checkpoint::manifest_file, error)) {
        checkpoint::internal::refuse_links(from);
    }
    std::filesystem::copy(from, target,
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing,
                          error);
    storage::require(error, "copy a checkpoint to", target);
    return target;
}

RTRAIN_DOOR boost::json::object Checkpoint::metadata() const {
    const storage::Location at = location();
    const std::string file = at.path + "/" + metadata_file;
    if (!at.filesystem.exists(file)) {
        return {};
    }
    if (at.filesystem.is_local() && !checkpoint::is_plain_file(at.path, metadata_file)) {
        throw checkpoint::internal::damaged(at.path, metadata_file, checkpoint::not_a_plain_file);
    }
    try {
        return checkpoint::parse_checked(at.filesystem.read(file));
    } catch (const std::invalid_argument& error) {
        throw CheckpointError(
            "RT-K2", detail::concat(at.filesystem.uri(file), " is damaged: ", error.what()));
    }
}

RTRAIN_DOOR void Checkpoint::set_metadata(const boost::json::object& metadata) const {
    const storage::Location at = location();
    at.filesystem.write(at.path + "/" + metadata_file, checkpoint::with_checksum(metadata));
}

RTRAIN_DOOR void Checkpoint::update_metadata(const boost::json::object& metadata) const {
    boost::json::object all = this->metadata();
    for (const auto& item : metadata) {
        all[item.key()] = item.value();
    }
    set_metadata(all);
}

RTRAIN_DOOR storage::Location Checkpoint::location() const {
    return filesystem ? storage::Location{*filesystem, path.string()} : storage::locate(path);
}

RTRAIN_DOOR std::string Checkpoint::uri() const {
    return filesystem ? filesystem->uri(path.string()) : path.string();
}

} // namespace rtrain
