// SPDX-License-Identifier: Apache-2.0
/// @file
/// One download per node: its processes share a local copy of remote files.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/node/node_copy.hpp>
#include <rtrain/storage/retry.hpp>
#include <rtrain/storage/transfer.hpp>
#include <rtrain/storage/transfer_config.hpp>

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::storage {

/// Returns local copies of the files `entries` (names and sizes) of `directory`. The first process
/// of this node that calls it downloads them, into a directory below TMPDIR accessible only to this
/// user. `version` distinguishes contents of equal sizes, for example a checksum of the manifest.
/// Throws StorageError like download_files; RT-S12 also if another process's download takes longer
/// than `config.deadline_s`; RT-S14 if the local directory is not safe.
[[nodiscard]] inline NodeCopy copy_to_node(const AnyFilesystem& files, const std::string& directory,
                                           const std::vector<Entry>& entries,
                                           const std::string& version,
                                           const TransferConfig& config = {}) {
    const auto deadline = deadline_of(config);
    std::string content = files.uri(directory) + '\n' + version + '\n';
    std::vector<std::string> names;
    for (const auto& entry : entries) {
        names.push_back(entry.name);
        content += entry.name + ' ' + std::to_string(entry.size) + '\n';
    }
    internal::require_names_below(names);
    const auto fill = [&](const std::filesystem::path& local) {
        TransferConfig rest = config;
        rest.deadline_s = std::chrono::duration<double>(deadline - Clock::now()).count();
        download_files(files, directory, names, local, rest);
        for (const auto& entry : entries) {
            internal::require_size((local / entry.name).string(),
                                   std::filesystem::file_size(local / entry.name), entry.size);
        }
    };
    if (auto copy = NodeCopy::make(std::move(content), entries, deadline, fill)) {
        return *copy;
    }
    throw TransientStorageError(
        "RT-S12", detail::concat("another process of this node did not finish its download of ",
                                 files.uri(directory), " within deadline_s = ", config.deadline_s,
                                 " s; check that process, or raise deadline_s"));
}

} // namespace rtrain::storage
