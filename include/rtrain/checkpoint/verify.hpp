// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether the files of a checkpoint are as they were written.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/checked_file.hpp>
#include <rtrain/checkpoint/manifest.hpp>
#include <rtrain/storage/file.hpp>

#include <cstddef>
#include <filesystem>

namespace rtrain::checkpoint {

/// The manifest in a local directory. Throws CheckpointError: RT-K1 the directory is no checkpoint
/// of ours, RT-K2 the manifest is damaged.
[[nodiscard]] inline Manifest read_manifest(const std::filesystem::path& directory) {
    const auto file = directory / manifest_file;
    if (!std::filesystem::is_regular_file(file)) {
        throw CheckpointError("RT-K1", detail::concat(directory.string(),
                                                      " is no checkpoint of rtrain: it has no ",
                                                      manifest_file));
    }
    return parse_manifest(storage::read_file(file), file.string());
}

/// Checks every byte of a checkpoint against its manifest, which is returned. Of `ranks` callers,
/// each checks the files that are its share. Throws CheckpointError [RT-K1, RT-K2] naming the first
/// file that is missing or damaged.
inline Manifest verify(const std::filesystem::path& directory, int rank = 0, int ranks = 1) {
    Manifest manifest = read_manifest(directory);
    const auto& files = manifest.contents.files;
    for (auto i = static_cast<std::size_t>(rank); i < files.size();
         i += static_cast<std::size_t>(ranks)) {
        if (const auto damage = damage_of(directory, files[i])) {
            throw CheckpointError("RT-K2", detail::concat("checkpoint damaged: ",
                                                          (directory / files[i].name).string(), ' ',
                                                          *damage));
        }
    }
    return manifest;
}

} // namespace rtrain::checkpoint
