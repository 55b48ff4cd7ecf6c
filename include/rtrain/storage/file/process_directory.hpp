// SPDX-License-Identifier: Apache-2.0
/// @file
/// A directory that lives as long as a process.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/os/others.hpp>
#include <rtrain/storage/file/file.hpp>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>

namespace rtrain::storage {

/// Newly created, for this user only; the destructor removes it recursively. The next process that
/// creates one removes those of killed processes. A lock shows that the owner is alive, even to
/// processes of other containers that share the directories but cannot see each other.
class ProcessDirectory {
public:
    /// `<base>/<name>-<user>-<process>-<random>`. Throws StorageError [RT-S1].
    ProcessDirectory(const std::filesystem::path& base, const std::string& name)
        : owner_(::getpid()) {
        sweep(base, name);
        do { // until locked before another process sweeps
            close_lock();
            std::string pattern = (base / detail::concat(prefix(name), owner_, "-XXXXXX")).string();
            if (::mkdtemp(pattern.data()) == nullptr) {
                throw system_error("create", pattern);
            }
            try {
                path_ = pattern;
            } catch (const std::bad_alloc&) {
                ::rmdir(pattern.c_str());
                throw;
            }
            lock_ = open_directory(path_);
            ::flock(lock_, LOCK_EX | LOCK_NB); // some file systems do not support locks
        } while (!std::filesystem::exists(path_));
    }
    ProcessDirectory(const ProcessDirectory&) = delete;
    ProcessDirectory& operator=(const ProcessDirectory&) = delete;
    ~ProcessDirectory() {
        if (owner_ == ::getpid()) { // not in a forked child
            std::error_code ignored;
            std::filesystem::remove_all(path_, ignored);
        }
        close_lock();
    }

    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

    /// Removes such directories left by killed processes.
    static void sweep(const std::filesystem::path& base, const std::string& name) {
        std::error_code ignored;
        for (const auto& entry : std::filesystem::directory_iterator(base, ignored)) {
            if (is_abandoned(entry.path(), name)) {
                std::filesystem::remove_all(entry.path(), ignored);
            }
        }
    }

    /// True if the path is such a directory of a killed process.
    [[nodiscard]] static bool is_abandoned(const std::filesystem::path& path,
                                           const std::string& name) {
        const std::string directory = path.filename().string();
        const std::string ours = prefix(name);
        pid_t process = 0;
        if (directory.starts_with(ours)) {
            std::from_chars(directory.data() + ours.size(), directory.data() + directory.size(),
                            process);
        }
        return process > 0 && !process_is_alive(process) && !is_locked(path);
    }

private:
    static std::string prefix(const std::string& name) {
        return detail::concat(name, '-', ::getuid(), '-');
    }

    static int open_directory(const std::filesystem::path& path) noexcept {
        return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    }

    static bool is_locked(const std::filesystem::path& path) noexcept {
        const int descriptor = open_directory(path);
        const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        ::close(descriptor);
        return locked;
    }

    void close_lock() noexcept {
        if (lock_ >= 0) {
            ::close(std::exchange(lock_, -1));
        }
    }

    pid_t owner_;
    std::filesystem::path path_;
    int lock_ = -1; ///< the directory, opened
};

} // namespace rtrain::storage
