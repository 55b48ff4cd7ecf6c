// SPDX-License-Identifier: Apache-2.0
/// @file
/// One download per node: the processes of a node share a local copy of remote files. The first
/// one downloads while the others wait; the last one to end removes the copy. The kernel frees the
/// locks of a killed process, so that another goes on in its place.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/machine.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/storage/file_lock.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/storage/node_directory.hpp>
#include <rtrain/storage/retry.hpp>
#include <rtrain/storage/transfer.hpp>
#include <rtrain/storage/transfer_config.hpp>

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

/// A shared copy: its directory, its lock, and a marker that says what is in it completely.
class NodeCopyFiles {
public:
    explicit NodeCopyFiles(const std::filesystem::path& base)
        : directory_(base), lock_path_(base.string() + ".lock"),
          marker_(base.string() + ".complete") {}
    NodeCopyFiles(const NodeCopyFiles&) = delete;
    NodeCopyFiles& operator=(const NodeCopyFiles&) = delete;
    ~NodeCopyFiles() {
        if (lock_ && lock_->try_lock(LOCK_EX)) {
            remove();
        }
    }

    [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

    /// Fills the directory when no other process has; then shares it. False to begin anew.
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
            fill(directory_); // on an error, the destructor removes all
            OutputFile(marker_).write(content);
        }
        return lock_->try_lock(LOCK_SH) && is_complete(content, entries);
    }

    /// Removes what a killed process left behind, unless another uses it.
    void sweep() { lock_.emplace(lock_path_); }

private:
    [[nodiscard]] bool is_complete(const std::string& content,
                                   const std::vector<Entry>& entries) const {
        std::ifstream file(marker_, std::ios::binary);
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
};

} // namespace internal

/// Keeps a node's copy of remote files. Copies of it share it.
class NodeCopy {
public:
    /// Where the files are. Others read them, too: do not change them.
    [[nodiscard]] const std::filesystem::path& directory() const { return files_->directory(); }

private:
    friend NodeCopy copy_to_node(const AnyFilesystem&, const std::string&,
                                 const std::vector<Entry>&, const std::string&,
                                 const TransferConfig&);
    explicit NodeCopy(std::shared_ptr<const internal::NodeCopyFiles> files)
        : files_(std::move(files)) {}
    std::shared_ptr<const internal::NodeCopyFiles> files_;
};

/// The files `entries` (names and sizes) of `directory`, as local files: downloaded by the first
/// process of this node that asks, into a directory below TMPDIR that only this user may enter.
/// `version` tells contents of equal sizes apart, for example a checksum of the manifest.
/// Throws StorageError as download_files; RT-S12 also when another process's download takes longer
/// than `config.deadline_s`; RT-S14 when the local directory is not safe.
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
    internal::require_plain_names(names);
    const auto cache = node_directory();
    const auto name = hash_text(content);
    content += boot_id();
    for (const auto& left : std::filesystem::directory_iterator(cache)) {
        if (left.path().extension() == ".lock" && left.path().stem() != name) {
            internal::NodeCopyFiles(cache / left.path().stem()).sweep();
        }
    }

    const auto copy = std::make_shared<internal::NodeCopyFiles>(cache / name);
    const auto fill = [&](const std::filesystem::path& local) {
        TransferConfig rest = config;
        rest.deadline_s = std::chrono::duration<double>(deadline - Clock::now()).count();
        download_files(files, directory, names, local, rest);
        for (const auto& entry : entries) {
            internal::require_size((local / entry.name).string(),
                                   std::filesystem::file_size(local / entry.name), entry.size);
        }
    };
    while (!copy->share(content, entries, fill)) {
        if (Clock::now() >= deadline) {
            throw TransientStorageError(
                "RT-S12",
                detail::concat("another process of this node did not finish its download of ",
                               files.uri(directory), " within deadline_s = ", config.deadline_s,
                               " s; look at what it does, or allow more time"));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return NodeCopy(copy);
}

} // namespace rtrain::storage
