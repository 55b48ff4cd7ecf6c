// SPDX-License-Identifier: Apache-2.0
/// @file
/// SessionDirectory: the directory in which the processes of a session on one node leave records
/// for each other (launch/session.hpp).
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/process_directory.hpp>
#include <rtrain/storage/file/temporary.hpp>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace rtrain::launch {

/// Members are thread-safe: a program may have several drivers.
class SessionDirectory {
public:
    static constexpr const char* name = "rtrain";

    explicit SessionDirectory(std::function<void()> removed) : removed_(std::move(removed)) {}
    SessionDirectory(const SessionDirectory&) = delete;
    SessionDirectory& operator=(const SessionDirectory&) = delete;

    /// Uses the directory of another process.
    void join(std::filesystem::path directory) {
        const std::lock_guard lock(mutex_);
        path_ = std::move(directory);
    }

    /// The path, empty before the first use.
    [[nodiscard]] std::filesystem::path known_path() const {
        const std::lock_guard lock(mutex_);
        return path_;
    }
    /// The path. The first use creates the directory, with all records.
    [[nodiscard]] std::filesystem::path path() {
        const std::lock_guard lock(mutex_);
        if (path_.empty()) {
            own_.emplace(storage::temporary_directory(), name);
            path_ = own_->path();
            for (const auto& [record, text] : records_) {
                storage::replace_file_unsynced(path_ / record, text);
            }
        }
        return path_;
    }
    /// A directory in memory, for what Open MPI shares between the ranks of this machine. Empty
    /// without /dev/shm.
    [[nodiscard]] std::optional<std::filesystem::path> shared_memory() {
        const std::lock_guard lock(mutex_);
        if (!shared_memory_) {
            try {
                shared_memory_.emplace("/dev/shm", name);
            } catch (const StorageError&) {
                return std::nullopt;
            }
        }
        return shared_memory_->path();
    }

    /// While a copy of the result exists, remove() removes nothing; the last one calls it.
    [[nodiscard]] std::shared_ptr<const void> use() {
        const std::lock_guard lock(mutex_);
        auto user = users_.lock();
        if (!user) {
            user = std::shared_ptr<const void>(this, [this](const void*) { remove(); });
            users_ = user;
        }
        return user;
    }

    /// Removes what this process has created, unless it is in use. It is created again when needed.
    void remove() {
        const std::lock_guard lock(mutex_);
        if (!users_.expired()) {
            return;
        }
        if (own_) {
            own_.reset();
            path_.clear();
            removed_();
        }
        shared_memory_.reset();
    }

    /// Keeps a record for processes that start now or later.
    void keep(const std::string& record, std::string text) {
        const std::lock_guard lock(mutex_);
        if (!path_.empty()) {
            write(record, text);
        }
        records_[record] = std::move(text);
    }

    /// Writes a file for the processes of now.
    void write(const std::string& file, const std::string& text) {
        storage::replace_file_unsynced(path() / file, text);
    }
    [[nodiscard]] std::optional<std::string> read(const std::string& file) const {
        const std::lock_guard lock(mutex_);
        return !path_.empty() && std::filesystem::exists(path_ / file)
                   ? std::optional(storage::read_file(path_ / file))
                   : std::nullopt;
    }
    void forget(const std::string& file) { std::filesystem::remove(path() / file); }

    /// Cleans up after a process that was killed.
    static void sweep() {
        std::error_code ignored;
        storage::ProcessDirectory::sweep(std::filesystem::temp_directory_path(ignored), name);
        storage::ProcessDirectory::sweep("/dev/shm", name);
    }

private:
    mutable std::recursive_mutex mutex_;
    std::function<void()> removed_;
    std::filesystem::path path_;
    std::optional<storage::ProcessDirectory> own_; ///< if this process has created it
    std::optional<storage::ProcessDirectory> shared_memory_;
    std::map<std::string, std::string> records_; ///< texts, by file name
    std::weak_ptr<const void> users_;
};

} // namespace rtrain::launch
