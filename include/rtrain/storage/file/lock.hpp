// SPDX-License-Identifier: Apache-2.0
/// @file
/// An exclusive lock on a directory. The kernel releases it when its process exits, for any reason.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/file_lock.hpp>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace rtrain::storage {

class DirectoryLock {
public:
    DirectoryLock() = default;
    DirectoryLock(const DirectoryLock&) = delete;
    DirectoryLock& operator=(const DirectoryLock&) = delete;
    ~DirectoryLock() {
        if (descriptor_ >= 0) {
            if (owner_ == ::getpid()) { // a child that has not yet called exec has a copy
                ::flock(descriptor_, LOCK_UN);
            }
            ::close(descriptor_);
        }
    }

    /// Throws StorageError [RT-S7] if another process of this machine is known to hold the lock and
    /// does not release it within `patience`. Never takes the lock itself, not even briefly: its
    /// next owner could fail then.
    static void require_free(const std::filesystem::path& directory,
                             std::chrono::milliseconds patience) {
        constexpr std::chrono::milliseconds pause{20};
        const auto limit = std::chrono::steady_clock::now() + patience;
        while (is_listed(directory / name)) {
            if (std::chrono::steady_clock::now() > limit) {
                throw held(directory);
            }
            std::this_thread::sleep_for(pause);
        }
    }

    /// Throws StorageError: RT-S7 another process holds the lock, RT-S3 locking is impossible.
    void acquire(const std::filesystem::path& directory) {
        const auto file = directory / name;
        descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                             S_IRUSR | S_IWUSR); // any reader could hold the lock
        if (descriptor_ < 0) {
            throw system_error("create", file);
        }
        ::fchmod(descriptor_, S_IRUSR | S_IWUSR); // created by an earlier version of rtrain
        if (!internal::try_flock(descriptor_, LOCK_EX, file)) {
            throw held(directory);
        }
        owner_ = ::getpid();
    }

private:
    /// True if the kernel lists a lock of this file. It does not list those of other containers.
    static bool is_listed(const std::filesystem::path& file) {
        struct stat found {};
        if (::stat(file.c_str(), &found) != 0) {
            return false;
        }
        char inode[64];
        std::snprintf(inode, sizeof inode, " %02x:%02x:%llu ", major(found.st_dev),
                      minor(found.st_dev), static_cast<unsigned long long>(found.st_ino));
        // 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
        auto locks = detail::strict(std::ifstream("/proc/locks"));
        for (std::string line; std::getline(locks, line);) {
            if (line.find(" FLOCK ") != std::string::npos &&
                line.find(inode) != std::string::npos) {
                return true;
            }
        }
        return false;
    }

    static StorageError held(const std::filesystem::path& directory) {
        return StorageError("RT-S7",
                            detail::concat("another process trains in ", directory.string(),
                                           "; wait for it, or give this run a different name"));
    }

    static constexpr const char* name = ".lock";
    int descriptor_ = -1;
    pid_t owner_ = -1;
};

/// Marks a file as in use while this object lives: in_use() returns true for it in all processes.
/// Does nothing if the file cannot be opened, or its file system has no locks.
class FileUse {
public:
    explicit FileUse(const std::filesystem::path& file)
        : descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
        ::flock(descriptor_, LOCK_SH | LOCK_NB);
    }
    FileUse(const FileUse&) = delete;
    FileUse& operator=(const FileUse&) = delete;
    ~FileUse() {
        if (descriptor_ >= 0) {
            ::close(descriptor_);
        }
    }

private:
    int descriptor_;
};

/// True if a FileUse of the file exists.
[[nodiscard]] inline bool in_use(const std::filesystem::path& file) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return false;
    }
    const bool used = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ::close(descriptor);
    return used;
}

} // namespace rtrain::storage
