// SPDX-License-Identifier: Apache-2.0
/// @file
/// Storage of a run's checkpoints, and the protocol by which one is written:
///
/// 1. Each rank writes its files into a staging directory and syncs them.
/// 2. Each rank hands in the list of what it has written. Rank 0 collects the lists.
/// 3. Rank 0 commits: it writes the manifest, syncs it and the directories, and renames the staging
///    directory to the checkpoint's name. The rename is the moment at which the checkpoint exists.
///
/// A storage service has no rename. There, ranks upload their files under the final name, and the
/// manifest, uploaded last, makes it a checkpoint. An attempt that was presumed dead may use the
/// same names. So each checks that it is still the current one before it writes or deletes, and a
/// directory with a manifest is not given up.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/checkpoint/layout/manifest.hpp>
#include <rtrain/format/checksummed_json.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/local.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/storage/transfer.hpp>

#include <boost/json/object.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

class Staging {
public:
    /// File in the run's directory that identifies the current attempt.
    static constexpr const char* attempt_file = ".validate_storage_marker";

    /// `attempt` is the same on all ranks, and different at each start of a run: late writes of an
    /// earlier attempt are not mixed up with ours. `scratch` is a directory of this node for files
    /// to be uploaded to a storage service. `first_list`: the first rank that leaves a list for
    /// collect(); 0 if no rank commits, but the driver.
    Staging(storage::Location run, std::string attempt, std::filesystem::path scratch,
            storage::TransferConfig transfer, int first_list = 1)
        : run_(std::move(run)), attempt_(std::move(attempt)), scratch_(std::move(scratch)),
          transfer_(std::move(transfer)), first_list_(first_list) {}

    [[nodiscard]] const storage::Location& run() const noexcept { return run_; }
    [[nodiscard]] bool is_local() const { return run_.filesystem.is_local(); }
    /// The path of a checkpoint or file of the run.
    [[nodiscard]] std::string path_of(const std::string& name) const {
        return run_.path + "/" + name;
    }

    /// The directory into which this rank writes the files of a checkpoint. On local storage, all
    /// ranks share it.
    [[nodiscard]] std::filesystem::path directory_of(const std::string& name, int rank) const {
        const std::string hidden =
            detail::concat(storage::temporary_prefix, "staging-", attempt_, '-', name);
        return is_local() ? std::filesystem::path(run_.path) / hidden
                          : scratch_ / detail::concat(hidden, '-', rank);
    }

    /// Creates that directory, empty; on local storage rank 0 does so, before the others write.
    /// Throws StorageError [RT-S16].
    void stage(const std::string& name, int rank) const {
        if (rank == 0 || !is_local()) {
            const auto directory = directory_of(name, rank);
            storage::remove_all(directory);
            storage::create_directories(directory);
        }
        if (rank == 0 && !is_local()) { // marks what an interrupted upload has left
            require_current();
            run_.filesystem.write(path_of(name) + "/" + uploading_file, attempt_);
        }
    }

    /// Path in the run's file system of the files of a checkpoint until commit(), or
    /// commit_in_place().
    [[nodiscard]] std::string path_before_commit(const std::string& name, bool in_place) const {
        return is_local() && !in_place ? directory_of(name, 0).string() : path_of(name);
    }

    /// On rank 0: adds metadata to a checkpoint that is staged. commit() makes it durable.
    void write_metadata(const std::string& name, boost::json::object metadata) const {
        storage::replace_file_unsynced(
            run_.filesystem, path_before_commit(name, false) + "/" + Checkpoint::metadata_file,
            with_checksum(std::move(metadata)));
    }

    /// Adds the files that this rank has staged to the checkpoint. Ranks from `first_list` on also
    /// leave their list for collect(). Throws StorageError [RT-S16].
    void hand_in(const std::string& name, int rank, const Contents& contents) const {
        if (!is_local()) {
            require_current();
            std::vector<std::string> names;
            for (const FileRecord& file : contents.files) {
                names.push_back(file.name);
            }
            storage::upload_files(run_.filesystem, directory_of(name, rank), names, path_of(name),
                                  transfer_);
            storage::remove_all(directory_of(name, rank));
        }
        if (rank >= first_list_) {
            leave_list(name, rank, to_json(contents));
        }
    }

    /// Called instead of hand_in() on a rank that failed. `error` is the cause, even if rank 0
    /// cannot be notified.
    void hand_in_failure(const std::string& name, int rank,
                         const std::exception& error) const noexcept {
        try {
            if (rank >= first_list_ && is_current()) {
                leave_list(name, rank, {{"error", detail::failure_of(error).message}});
            }
        } catch (const std::exception& second) {
            console::warn("could not notify rank 0 that this rank's part of %s has failed: %s",
                          name.c_str(), second.what());
        }
    }

    /// On rank 0, which has written `mine`, or in the driver: returns what the others have handed
    /// in. Waits for them, but no longer than `grace` after a request to stop. Throws
    /// CheckpointError [RT-K13] if one of them failed or handed in nothing, ModelError [RT-M25] if
    /// its parameters differ.
    [[nodiscard]] Contents collect(const std::string& name, int ranks, const Contents& mine,
                                   const std::stop_token& stop) const {
        using namespace std::chrono_literals;
        using Clock = std::chrono::steady_clock;
        constexpr auto grace = 5s; // others may be about to finish
        std::optional<Clock::time_point> end;
        Contents all;
        const auto longest = is_local() ? 50ms : 1000ms;
        for (int rank = first_list_; rank < ranks; ++rank) {
            const std::string file = list_of(name, rank);
            for (auto pause = 1ms; !run_.filesystem.exists(file);
                 pause = std::min(2 * pause, longest)) {
                if (stop.stop_requested() && !end) {
                    end = Clock::now() + grace;
                }
                if (end && Clock::now() > *end) {
                    throw CheckpointError("RT-K13", detail::concat("checkpoint ", name,
                                                                   " was given up: rank ", rank,
                                                                   " has not written its part"));
                }
                std::this_thread::sleep_for(pause);
            }
            const auto list = parse_checked(run_.filesystem.read(file));
            if (const auto* const error = list.if_contains("error")) {
                throw CheckpointError("RT-K13",
                                      detail::concat("rank ", rank, " could not write its part of ",
                                                     name, ": ", error->as_string()));
            }
            Contents theirs = contents_from(list, Listed::by_one_rank);
            require_same_sums(mine, theirs, rank);
            merge(all, std::move(theirs));
        }
        return all;
    }

    /// On rank 0: commits what has been handed in as the checkpoint `name`. When it has returned,
    /// the checkpoint exists; settle() must follow. Throws StorageError [RT-S16] if another attempt
    /// has taken over the run.
    void commit(const std::string& name, const Manifest& manifest) const {
        require_current();
        const std::string text = manifest_text(manifest);
        if (!is_local()) {
            run_.filesystem.write(path_of(name) + "/" + manifest_file, text);
            return;
        }
        const auto directory = directory_of(name, 0);
        for (int rank = first_list_; rank < manifest.ranks; ++rank) {
            storage::remove_all(list_of(name, rank));
        }
        if (const auto metadata = directory / Checkpoint::metadata_file;
            std::filesystem::exists(metadata)) {
            storage::OutputFile(metadata, storage::OutputFile::Mode::append).sync();
        }
        storage::OutputFile file(directory / manifest_file);
        file.write(text);
        file.sync();
        file.close();
        sync_directories_of(manifest.contents, directory);
        storage::rename_file(directory, path_of(name));
    }

    /// Writes the manifest of a checkpoint whose files are already in place; settle() must follow.
    void commit_in_place(const std::string& name, const Manifest& manifest) const {
        require_current();
        if (is_local()) {
            for (const FileRecord& file : manifest.contents.files) {
                storage::OutputFile(std::filesystem::path(path_of(name)) / file.name,
                                    storage::OutputFile::Mode::append)
                    .sync();
            }
            sync_directories_of(manifest.contents, path_of(name));
        }
        run_.filesystem.write(path_of(name) + "/" + manifest_file, manifest_text(manifest));
    }

    /// After a commit by `ranks` ranks: makes it durable, and removes what only the commit needed.
    void settle(const std::string& name, int ranks) const {
        if (is_local()) {
            storage::sync_directory(run_.path);
            return;
        }
        try {
            for (int rank = first_list_; rank < ranks; ++rank) {
                run_.filesystem.remove(list_of(name, rank));
            }
            run_.filesystem.remove(path_of(name) + "/" + uploading_file);
        } catch (const StorageError& error) { // the next start of the run removes it
            console::warn("could not clean up %s: %s", name.c_str(), error.what());
        }
    }

    /// Removes what was staged for a checkpoint that is not committed. A committed one stays, and
    /// so do files that may be another attempt's. On a service, the mark that it is unfinished
    /// stays for sweep(): files may still arrive, because a transfer that takes too long is not
    /// cancelled.
    void give_up(const std::string& name, int rank) const {
        if (rank == 0 || !is_local()) {
            storage::remove_all(directory_of(name, rank));
        }
        if (rank == 0 && !is_local() && is_current() &&
            !run_.filesystem.exists(path_of(name) + "/" + manifest_file)) {
            for (const auto& entry : run_.filesystem.list(path_of(name))) {
                if (entry.name != uploading_file) {
                    run_.filesystem.remove(path_of(name) + "/" + entry.name);
                }
            }
        }
    }

    /// Deletes a checkpoint. It stops being one first, so that no reader mistakes a part for the
    /// whole. Throws StorageError [RT-S16].
    void remove(const std::string& name) const {
        require_current();
        if (is_local()) {
            const auto trash = std::filesystem::path(run_.path) /
                               detail::concat(storage::temporary_prefix, "trash-", name);
            storage::rename_durably(path_of(name), trash);
            storage::remove_all(trash);
        } else { // sweep() completes this if it is interrupted
            run_.filesystem.write(path_of(name) + "/" + uploading_file, attempt_);
            run_.filesystem.remove(path_of(name) + "/" + manifest_file);
            run_.filesystem.remove(path_of(name));
        }
    }

    /// Removes what an interrupted attempt has left of unfinished checkpoints, and of files in
    /// finished ones. Before that, on a service, calls `note()` with the names of the former, which
    /// must not be reused: their files may still arrive. Throws StorageError [RT-S16].
    template <class Note>
    void sweep(Note&& note) const {
        std::vector<std::string> unfinished; // paths within the run
        std::vector<std::string> left;
        for (const auto& entry : run_.filesystem.list(run_.path)) {
            if (entry.name.starts_with(storage::temporary_prefix)) {
                left.push_back(entry.name);
            } else if (entry.is_directory) {
                const auto files = run_.filesystem.list(path_of(entry.name));
                if (!is_local() && is_unfinished(files)) {
                    unfinished.push_back(entry.name);
                    continue;
                }
                for (const auto& file : files) {
                    if (file.name.starts_with(storage::temporary_prefix)) {
                        left.push_back(entry.name + "/" + file.name);
                    }
                }
            }
        }
        if (!left.empty() || !unfinished.empty()) {
            require_current();
        }
        if (is_local() && !left.empty()) { // remove() may have left a name that is not durable
            storage::sync_directory(run_.path);
        }
        if (!unfinished.empty()) {
            note(std::as_const(unfinished));
        }
        for (const auto& names : {unfinished, left}) {
            for (const std::string& name : names) {
                run_.filesystem.remove(path_of(name));
            }
        }
    }

    /// A process that was presumed dead may still run, cut off; what it writes must not count.
    /// Throws StorageError [RT-S16].
    void require_current() const {
        if (!is_current()) {
            throw StorageError("RT-S16",
                               detail::concat("another process has taken over the run in ",
                                              run_.filesystem.uri(run_.path),
                                              "; this process must not write to it any more"));
        }
    }

private:
    [[nodiscard]] bool is_current() const {
        const std::string file = path_of(attempt_file);
        return !run_.filesystem.exists(file) || run_.filesystem.read(file) == attempt_;
    }

    [[nodiscard]] std::string list_of(const std::string& name, int rank) const {
        const std::string directory = is_local() ? directory_of(name, 0).string() : path_of(name);
        return detail::concat(directory, '/', storage::temporary_prefix, "list-", attempt_, '-',
                              rank);
    }

    void leave_list(const std::string& name, int rank, boost::json::object list) const {
        storage::replace_file_unsynced(run_.filesystem, list_of(name, rank),
                                       with_checksum(std::move(list)));
    }

    static void sync_directories_of(const Contents& contents,
                                    const std::filesystem::path& directory) {
        std::set<std::filesystem::path> directories{directory};
        for (const FileRecord& file : contents.files) {
            for (auto inner = std::filesystem::path(file.name).parent_path(); !inner.empty();
                 inner = inner.parent_path()) {
                directories.insert(directory / inner);
            }
        }
        for (const auto& each : directories) {
            storage::sync_directory(each);
        }
    }

    /// True for the files of a directory whose upload began and was not committed, or that has only
    /// late files of ours.
    [[nodiscard]] static bool is_unfinished(const std::vector<storage::Entry>& files) {
        const auto has = [&](const char* name) {
            return std::ranges::any_of(files, [&](const auto& file) { return file.name == name; });
        };
        const bool only_ours = !files.empty() && std::ranges::all_of(files, [](const auto& file) {
            return file.name.starts_with(storage::temporary_prefix);
        });
        return only_ours || (has(uploading_file) && !has(manifest_file));
    }

    static constexpr const char* uploading_file = ".rtrain-uploading";
    storage::Location run_;
    std::string attempt_;
    std::filesystem::path scratch_;
    storage::TransferConfig transfer_;
    int first_list_;
};

} // namespace rtrain::checkpoint
