// SPDX-License-Identifier: Apache-2.0
/// @file
/// A checkpoint on a storage service, as local files.
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/storage/node/node_cache.hpp>

#include <string>
#include <vector>

namespace rtrain::checkpoint {

namespace internal {

inline void list_recursively(const storage::Location& at, const std::string& below,
                             std::vector<storage::Entry>& files) {
    for (auto& entry : at.filesystem.list(at.path + (below.empty() ? "" : "/" + below))) {
        entry.name = below.empty() ? entry.name : below + "/" + entry.name;
        if (entry.is_directory) {
            list_recursively(at, entry.name, files);
        } else {
            files.push_back(std::move(entry));
        }
    }
}

/// Lists all files of a directory. Throws CheckpointError [RT-K1] if there are none.
[[nodiscard]] inline std::vector<storage::Entry> files_at(const storage::Location& at) {
    std::vector<storage::Entry> files;
    list_recursively(at, "", files);
    if (files.empty()) {
        throw CheckpointError("RT-K1", detail::concat(at.filesystem.uri(at.path),
                                                      " is not a directory, so not a checkpoint"));
    }
    return files;
}

} // namespace internal

/// Downloads a directory, once for all processes of this node; with a manifest, every byte is
/// checked. Throws StorageError, CheckpointError: RT-K1 it does not exist, RT-K2 it is damaged.
[[nodiscard]] inline storage::NodeCopy download(const storage::Location& at) {
    const auto files = internal::files_at(at);
    const std::string manifest = at.path + "/" + manifest_file;
    const bool has_manifest = at.filesystem.exists(manifest);
    const auto version = std::to_string(has_manifest ? crc32c(at.filesystem.read(manifest)) : 0);
    auto copy = storage::copy_to_node(at.filesystem, at.path, files, version);
    if (has_manifest) {
        (void)verify(copy.directory());
    }
    return copy;
}

} // namespace rtrain::checkpoint
