// SPDX-License-Identifier: Apache-2.0
/// @file
/// Moves the directory of an earlier run of the same name out of the way of a run that starts over.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/text/random_digits.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/lock.hpp>
#include <rtrain/storage/file/process_directory.hpp>
#include <rtrain/storage/file/temporary.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/transfer.hpp>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::detail {

/// Suffix of a run's name with RunConfig::fast_dev_run.
inline constexpr std::string_view fast_dev_suffix = ".fast_dev_run";

/// Copies a directory within a storage service, which cannot rename; the files of one directory at
/// a time are in `scratch`.
inline void copy_directory(const storage::AnyFilesystem& files, const std::string& from,
                           const std::string& to, const storage::TransferConfig& transfer) {
    const storage::ProcessDirectory scratch(storage::temporary_directory(), "rtrain-scratch");
    std::vector<std::string> names;
    for (const storage::Entry& entry : files.list(from)) {
        if (entry.is_directory) {
            copy_directory(files, concat(from, '/', entry.name), concat(to, '/', entry.name),
                           transfer);
        } else {
            names.push_back(entry.name);
        }
    }
    storage::download_files(files, from, names, scratch.path(), transfer);
    storage::upload_files(files, scratch.path(), names, to, transfer);
}

/// Call once per program, before a run begins: moves the run's old directory away if the run starts
/// over. Throws StorageError [RT-S7] if another process trains in it.
inline void make_way(const RunConfig& run, const std::string& name) {
    constexpr std::chrono::milliseconds patience{400};
    const bool is_dev = run.fast_dev_run > 0 && name.ends_with(fast_dev_suffix);
    const storage::Location at = run_location(run, name);
    if (is_dev) {
        console::say("fast_dev_run: at most %d batches of each loop over batches, one epoch, no "
                     "checkpoints",
                     run.fast_dev_run);
    }
    if ((!is_dev && run.resume != Resume::never) || !at.filesystem.exists(at.path)) {
        return;
    }
    if (at.filesystem.is_local()) {
        storage::DirectoryLock::require_free(at.path, patience);
    }
    if (is_dev) {
        at.filesystem.remove(at.path);
        return;
    }
    const std::string kept = concat(at.path, ".old-", date_now(), '-', random_digits());
    if (at.filesystem.is_local()) {
        storage::rename_durably(at.path, kept);
    } else {
        copy_directory(at.filesystem, at.path, kept, run.transfer);
        at.filesystem.remove(at.path);
    }
    console::say("the run \"%s\" starts over; its previous files are kept in %s", name.c_str(),
                 at.filesystem.uri(kept).c_str());
}

} // namespace rtrain::detail
