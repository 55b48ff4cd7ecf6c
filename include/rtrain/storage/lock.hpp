// SPDX-License-Identifier: Apache-2.0
/// @file
/// One owner for a directory. The kernel frees the lock when its process ends, however it ends.
#pragma once

#include <rtrain/error.hpp>
#include <rtrain/storage/file.hpp>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace rtrain::storage {

class DirectoryLock {
public:
    DirectoryLock() = default;
    DirectoryLock(const DirectoryLock&) = delete;
    DirectoryLock& operator=(const DirectoryLock&) = delete;
    ~DirectoryLock() {
        if (descriptor_ >= 0) {
            ::close(descriptor_);
        }
    }

    /// Throws StorageError [RT-S7] when another process has the lock and does not give it back
    /// within `patience`. Does not take it, and creates nothing.
    static void require_free(const std::filesystem::path& directory,
                             std::chrono::milliseconds patience) {
        constexpr std::chrono::milliseconds pause{20};
        const int descriptor = ::open((directory / name).c_str(), O_RDWR | O_CLOEXEC);
        if (descriptor < 0) {
            return;
        }
        const auto limit = std::chrono::steady_clock::now() + patience;
        bool is_held = true;
        while ((is_held = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) &&
               std::chrono::steady_clock::now() < limit) {
            std::this_thread::sleep_for(pause);
        }
        ::close(descriptor);
        if (is_held) {
            throw held(directory);
        }
    }

    /// Throws StorageError [RT-S7] when another process has the lock.
    void acquire(const std::filesystem::path& directory) {
        const auto file = directory / name;
        descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (descriptor_ < 0) {
            throw system_error("create", file);
        }
        if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
            throw held(directory);
        }
    }

private:
    static StorageError held(const std::filesystem::path& directory) {
        return StorageError("RT-S7",
                            detail::concat("another process trains in ", directory.string(),
                                           "; wait for it, or give this run another "
                                           "name"));
    }

    static constexpr const char* name = ".lock";
    int descriptor_ = -1;
};

/// Says that a file is being used, as long as this object lives: in_use() of it is true in all
/// processes. Nothing happens when the file cannot be opened, or its file system has no locks.
class FileUse {
public:
    explicit FileUse(const std::filesystem::path& file)
        : descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
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

/// Whether a FileUse of the file lives.
[[nodiscard]] inline bool in_use(const std::filesystem::path& file) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return false;
    }
    const bool used = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ::close(descriptor);
    return used;
}

} // namespace rtrain::storage
