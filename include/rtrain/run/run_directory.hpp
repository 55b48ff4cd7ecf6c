// SPDX-License-Identifier: Apache-2.0
/// @file
/// RunDirectory: the run's directory in storage. Files on a storage service cannot be appended to,
/// so the logs of such a run grow in a local directory and are uploaded periodically.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/text/random_digits.hpp>
#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/storage/file/directory_handle.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/lock.hpp>
#include <rtrain/storage/file/process_directory.hpp>
#include <rtrain/storage/file/temporary.hpp>
#include <rtrain/storage/local.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/storage/retrying.hpp>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

namespace rtrain {

namespace detail {

/// For example 2026-11-27_09-12-33.
[[nodiscard]] inline std::string date_now() {
    const std::time_t now = std::time(nullptr);
    char date[32] = {};
    std::tm local{};
    std::strftime(date, sizeof date, "%Y-%m-%d_%H-%M-%S", localtime_r(&now, &local));
    return date;
}

/// `rtrain_run-<date>-<random digits>`: two unnamed runs never share a directory.
[[nodiscard]] inline std::string generated_name() {
    return concat("rtrain_run-", date_now(), '-', random_digits());
}

/// Returns the parent directory of runs; a local one is absolute. Retries requests to a service
/// that fail transiently.
[[nodiscard]] inline storage::Location storage_root(const RunConfig& run) {
    const auto retrying = [&](const storage::AnyFilesystem& files) {
        return storage::AnyFilesystem(storage::Retrying(files, run.transfer), files.scheme());
    };
    if (run.storage_filesystem) {
        const auto& files = *run.storage_filesystem;
        return {files.is_local() ? files : retrying(files), run.storage_path.string()};
    }
    const char* const home = std::getenv("HOME");
    const std::filesystem::path base = home != nullptr ? home : ".";
    const auto& configured = run.storage_path;
    const auto path = configured.empty()           ? base / "rtrain_results"
                      : *configured.begin() == "~" ? base / configured.lexically_relative("~")
                                                   : configured;
    storage::Location root = storage::locate(path, run.transfer);
    if (root.filesystem.is_local()) {
        root.path = std::filesystem::absolute(root.path).lexically_normal().string();
        while (root.path.size() > 1 && root.path.back() == '/') {
            root.path.pop_back();
        }
    } else {
        root.filesystem = retrying(root.filesystem);
    }
    return root;
}

/// The directory of the run `name`.
[[nodiscard]] inline storage::Location run_location(const RunConfig& run, const std::string& name) {
    storage::Location at = storage_root(run);
    at.path += "/" + name;
    return at;
}

/// Returns an identifier that is unique for each start of a run.
[[nodiscard]] inline std::string new_attempt() {
    return random_digits() + random_digits();
}

} // namespace detail

class RunDirectory {
public:
    /// `logs`: names of the files, and directories of files, that grow.
    RunDirectory(storage::Location at, std::vector<std::string> logs)
        : at_(std::move(at)), logs_(std::move(logs)) {
        if (!is_local()) {
            scratch_.emplace(storage::temporary_directory(), "rtrain-scratch");
        }
    }

    [[nodiscard]] const storage::Location& location() const noexcept { return at_; }
    [[nodiscard]] bool is_local() const { return at_.filesystem.is_local(); }
    [[nodiscard]] std::string name() const {
        return std::filesystem::path(at_.path).filename().string();
    }
    /// The path or URI, for messages.
    [[nodiscard]] std::string uri() const { return at_.filesystem.uri(at_.path); }
    [[nodiscard]] std::string path_of(const std::string& name) const {
        return at_.path + "/" + name;
    }
    /// Directory for files to be uploaded to a storage service.
    [[nodiscard]] std::filesystem::path scratch() const {
        return is_local() ? std::filesystem::path() : scratch_->path();
    }
    /// The local directory that logs grow in.
    [[nodiscard]] std::filesystem::path log_directory() const {
        return is_local() ? std::filesystem::path(at_.path) : scratch_->path() / "logs";
    }

    /// Returns the name of a directory directly inside this one. Throws CheckpointError [RT-K15].
    [[nodiscard]] std::string name_of(const storage::Location& inside) const {
        const std::filesystem::path path =
            inside.filesystem.is_local() ? std::filesystem::absolute(inside.path).lexically_normal()
                                         : std::filesystem::path(inside.path);
        if (path.parent_path() != std::filesystem::path(at_.path)) {
            throw CheckpointError("RT-K15",
                                  detail::concat(inside.filesystem.uri(inside.path),
                                                 " is not directly in the run's directory ", uri(),
                                                 "; let rtrain copy it, or move it there"));
        }
        return path.filename().string();
    }

    /// Throws CheckpointError [RT-K16] if deleting `directory` would delete the run.
    void require_outside_of(const std::filesystem::path& directory) const {
        const auto inside = std::filesystem::path(at_.path).lexically_relative(
            std::filesystem::absolute(directory).lexically_normal());
        if (is_local() && !inside.empty() && *inside.begin() != "..") {
            throw CheckpointError(
                "RT-K16",
                detail::concat(
                    directory.string(), " contains the run's directory ", uri(),
                    " and cannot be deleted after the upload; report a different directory"));
        }
    }

    /// Rank 0: creates the directory, locks it for this process, and writes `token` to it. Throws
    /// StorageError [RT-S1] if it cannot be written, [RT-S7] if another process trains in it.
    void take(const std::string& token) {
        if (is_local()) {
            storage::require_writable(at_.path);
            lock_.acquire(at_.path);
            held_.hold(at_.path);
        }
        try {
            storage::replace_file_unsynced(at_.filesystem, path_of(marker), token);
        } catch (const StorageError& error) {
            throw StorageError("RT-S1",
                               detail::concat("cannot write to ", uri(), ": ", error.message(),
                                              "; set storage_path to a writable directory"));
        }
        if (!is_local()) {
            storage::create_directories(log_directory());
            for (const std::string& name : logs_) {
                fetch_log(name);
            }
        }
    }

    /// Writes one of the run's own files, whole. Throws StorageError [RT-S17].
    void write(const char* name, const std::string& text) const {
        require_same();
        at_.filesystem.write(path_of(name), text);
    }

    /// Other ranks: throws StorageError [RT-S2] if this rank does not see what rank 0 wrote. Waits
    /// up to 5 s for a network file system.
    void require_shared(const std::string& token) {
        using namespace std::chrono_literals;
        const auto limit = std::chrono::steady_clock::now() + 5s;
        while (!at_.filesystem.exists(path_of(marker)) ||
               at_.filesystem.read(path_of(marker)) != token) {
            if (std::chrono::steady_clock::now() > limit) {
                throw StorageError(
                    "RT-S2", detail::concat("this rank does not see what rank 0 wrote to ", uri(),
                                            "; set storage_path to a directory shared by all "
                                            "nodes, or to a storage service"));
            }
            std::this_thread::sleep_for(50ms);
        }
        if (is_local()) { // rank 0 has made it durable
            storage::require_writable(at_.path, false);
            held_.hold(at_.path);
        }
    }

    /// Throws StorageError [RT-S17] if the directory was replaced or emptied since take(). A
    /// storage service has no directories, so there this only checks that the token still exists.
    void require_same() const {
        const bool is_same = !is_local() || held_.is_at(at_.path);
        if (!is_same || !at_.filesystem.exists(path_of(marker))) {
            throw StorageError(
                "RT-S17", detail::concat("the run's directory ", uri(), " was ",
                                         is_same ? "emptied" : "deleted, moved or replaced",
                                         " during the run; its contents are lost, and restarting "
                                         "the run would start over"));
        }
    }

    /// Adds a file for publish_logs() to upload to a storage service.
    void add_log(std::string name) { logs_.push_back(std::move(name)); }

    /// Uploads the current logs to a storage service.
    void publish_logs() const {
        if (is_local()) {
            return;
        }
        for (const std::string& name : logs_) {
            publish_log(name);
        }
    }

private:
    void fetch_log(const std::string& name) const {
        const auto log = at_.filesystem.look_at(path_of(name));
        if (log && log->is_directory) {
            for (const storage::Entry& entry : at_.filesystem.list(path_of(name))) {
                fetch_log(name + "/" + entry.name);
            }
        } else if (log) {
            storage::create_directories((log_directory() / name).parent_path());
            storage::replace_file(log_directory() / name, at_.filesystem.read(path_of(name)));
        }
    }

    void publish_log(const std::string& name) const {
        const auto log = log_directory() / name;
        if (std::filesystem::is_directory(log)) {
            for (const auto& entry : std::filesystem::directory_iterator(log)) {
                publish_log(name + "/" + entry.path().filename().string());
            }
        } else if (std::filesystem::exists(log)) {
            at_.filesystem.write(path_of(name), storage::read_file(log));
        }
    }

    static constexpr const char* marker = checkpoint::Staging::attempt_file;
    storage::Location at_;
    std::vector<std::string> logs_;
    std::optional<storage::ProcessDirectory> scratch_; ///< with a storage service
    storage::DirectoryLock lock_;                      ///< of rank 0
    storage::DirectoryHandle held_;                    ///< if local
};

} // namespace rtrain
