// SPDX-License-Identifier: Apache-2.0
/// @file
/// A directory that a process keeps open, to detect when its path leads elsewhere.
#pragma once

#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::storage {

class DirectoryHandle {
public:
    DirectoryHandle() = default;
    DirectoryHandle(const DirectoryHandle&) = delete;
    DirectoryHandle& operator=(const DirectoryHandle&) = delete;
    ~DirectoryHandle() {
        if (descriptor_ >= 0) {
            ::close(descriptor_);
        }
    }

    /// Detects nothing if the directory cannot be opened.
    void hold(const std::filesystem::path& directory) {
        descriptor_ = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (descriptor_ >= 0 && ::fstat(descriptor_, &held_) != 0) {
            ::close(descriptor_);
            descriptor_ = -1;
        }
    }

    /// True if the path still leads to the held directory. While it is open, no new directory gets
    /// its inode.
    [[nodiscard]] bool is_at(const std::filesystem::path& directory) const {
        struct stat now {};
        return descriptor_ < 0 || (::stat(directory.c_str(), &now) == 0 &&
                                   now.st_dev == held_.st_dev && now.st_ino == held_.st_ino);
    }

private:
    int descriptor_ = -1;
    struct stat held_ {};
};

} // namespace rtrain::storage
