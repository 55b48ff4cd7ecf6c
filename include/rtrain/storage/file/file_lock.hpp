// SPDX-License-Identifier: Apache-2.0
/// @file
/// A lock shared by the processes of a node. The kernel releases it when its owner exits, for any
/// reason.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/storage/file/file.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::storage {
namespace internal {

/// Locks an open file, LOCK_EX or LOCK_SH; false if another process has locked it. Throws
/// StorageError [RT-S3] if it cannot be locked at all, because waiting would never end.
[[nodiscard]] inline bool try_flock(int descriptor, int kind, const std::filesystem::path& path) {
    while (::flock(descriptor, kind | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) {
            return false;
        }
        if (errno != EINTR) {
            throw StorageError("RT-S3",
                               rtrain::detail::concat("cannot lock ", path.string(), ": ",
                                                      std::strerror(errno),
                                                      "; if its file system does not support "
                                                      "flock, use a directory on one that does"));
        }
    }
    return true;
}

} // namespace internal

/// A lock on a file, which is created if missing and may be removed by its last owner.
class FileLock {
public:
    explicit FileLock(std::filesystem::path path)
        : path_(std::move(path)),
          descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
        if (descriptor_ < 0) {
            throw system_error("create", path_);
        }
    }
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;
    ~FileLock() { ::close(descriptor_); }

    /// Returns true if it acquired the lock, LOCK_EX or LOCK_SH. Converting the lock is not atomic.
    /// Throws StorageError [RT-S3] if locking is impossible.
    [[nodiscard]] bool try_lock(int kind) {
        return internal::try_flock(descriptor_, kind, path_) && is_current();
    }
    /// With LOCK_EX only. Waiting processes find that the lock is no longer current.
    void remove_file() { ::unlink(path_.c_str()); }

    /// False if another process removed the file since it was opened.
    [[nodiscard]] bool is_current() const {
        struct stat mine = {};
        struct stat named = {};
        return ::fstat(descriptor_, &mine) == 0 && ::lstat(path_.c_str(), &named) == 0 &&
               mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
    }

private:
    std::filesystem::path path_;
    int descriptor_;
};

} // namespace rtrain::storage
