// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files shared by the processes of a node: the first process creates them while the others wait,
/// the last one to exit removes them. The kernel releases the locks of a killed process, so that
/// another one takes over.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/os/machine.hpp>
#include <rtrain/process/os/owner.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/file_lock.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/node/node_directory.hpp>
#include <rtrain/storage/retry.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <sys/file.h>
#include <sys/stat.h>

namespace rtrain::storage {
namespace internal {

/// A shared copy: its directory, its lock, and a marker that records its complete content.
class NodeCopyFiles {
public:
    explicit NodeCopyFiles(const std::filesystem::path& base)
        : directory_(base), lock_path_(base.string() + ".lock"),
          marker_(base.string() + ".complete") {}
    NodeCopyFiles(const NodeCopyFiles&) = delete;
    NodeCopyFiles& operator=(const NodeCopyFiles&) = delete;
    ~NodeCopyFiles() {
        try {
            if (owner_.is_this_process() && lock_ && lock_->try_lock(LOCK_EX)) {
                remove(); // a forked process shares the lock
            }
        } catch (const StorageError&) { // others may still read the files
        }
    }

    [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

    /// Fills the directory unless another process has, then shares it. Returns false to retry.
    template <class Fill>
    [[nodiscard]] bool share(const std::string& content, const std::vector<Entry>& entries,
                             Fill&& fill) {
        if (!lock_ || !lock_->is_current()) {
            lock_.emplace(lock_path_);
        }
        if (lock_->try_lock(LOCK_EX) && !is_complete(content, entries)) {
            std::error_code error;
            std::filesystem::remove(marker_, error);
            std::filesystem::remove_all(directory_, error);
            if (::mkdir(directory_.c_str(), 0700) != 0) {
                throw system_error("create", directory_);
            }
            fill(directory_); // on an error, the destructor removes everything
            OutputFile(marker_).write(content);
        }
        return lock_->try_lock(LOCK_SH) && is_complete(content, entries);
    }

    /// Removes what a killed process left, unless another uses it.
    void sweep() { lock_.emplace(lock_path_); }

private:
    [[nodiscard]] bool is_complete(const std::string& content,
                                   const std::vector<Entry>& entries) const {
        std::ifstream file = open_stream(marker_);
        const std::string found{std::istreambuf_iterator<char>(file),
                                std::istreambuf_iterator<char>()};
        return found == content && std::ranges::all_of(entries, [&](const Entry& entry) {
                   std::error_code error;
                   return std::filesystem::file_size(directory_ / entry.name, error) ==
                              entry.size &&
                          !error;
               });
    }

    void remove() {
        std::error_code ignored;
        std::filesystem::remove(marker_, ignored);
        std::filesystem::remove_all(directory_, ignored);
        lock_->remove_file();
    }

    std::filesystem::path directory_;
    std::filesystem::path lock_path_;
    std::filesystem::path marker_;
    std::optional<FileLock> lock_;
    process::Owner owner_;
};

} // namespace internal

/// Keeps a node's copy of files alive. Copies of this object share it.
class NodeCopy {
public:
    /// Returns the files that `fill(directory)` creates in a directory below TMPDIR accessible only
    /// to this user. The first process of this node that requests this `content` fills it.
    /// `entries`: required names and sizes. nullopt if another process is still filling it at
    /// `deadline`. Throws what `fill` throws, and StorageError: RT-S14, or RT-S3 for system errors.
    template <class Fill>
    [[nodiscard]] static std::optional<NodeCopy>
    make(std::string content, const std::vector<Entry>& entries, Clock::time_point deadline,
         const Fill& fill) {
        const auto cache = node_directory();
        const auto name = hash_text(content);
        content += boot_id();
        for (const auto& left : std::filesystem::directory_iterator(cache)) {
            if (left.path().extension() == ".lock" && left.path().stem() != name) {
                internal::NodeCopyFiles(cache / left.path().stem()).sweep();
            }
        }
        auto files = std::make_shared<internal::NodeCopyFiles>(cache / name);
        while (!files->share(content, entries, fill)) {
            if (Clock::now() >= deadline) {
                return std::nullopt;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        return NodeCopy(std::move(files));
    }

    /// The directory of the files. Other processes read them too: do not change them.
    [[nodiscard]] const std::filesystem::path& directory() const { return files_->directory(); }

private:
    explicit NodeCopy(std::shared_ptr<const internal::NodeCopyFiles> files)
        : files_(std::move(files)) {}
    std::shared_ptr<const internal::NodeCopyFiles> files_;
};

} // namespace rtrain::storage
