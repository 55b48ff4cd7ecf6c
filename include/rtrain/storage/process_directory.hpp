// SPDX-License-Identifier: Apache-2.0
/// @file
/// A directory that lives as long as a process.
#pragma once

#include <rtrain/error.hpp>
#include <rtrain/storage/file.hpp>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <unistd.h>

namespace rtrain::storage {

/// Made new, for this user only; the destructor removes it with all in it. Those of processes that
/// were killed are removed by the next process that makes one.
class ProcessDirectory {
public:
    /// `<base>/<name>-<user>-<process>-<random>`. Throws StorageError [RT-S1].
    ProcessDirectory(const std::filesystem::path& base, const std::string& name)
        : owner_(::getpid()) {
        const std::string ours = detail::concat(name, '-', ::getuid(), '-');
        std::error_code ignored;
        for (const auto& entry : std::filesystem::directory_iterator(base, ignored)) {
            const std::string other = entry.path().filename().string();
            if (other.starts_with(ours) && is_dead(std::string_view(other).substr(ours.size()))) {
                std::filesystem::remove_all(entry.path(), ignored);
            }
        }
        std::string pattern = (base / detail::concat(ours, owner_, "-XXXXXX")).string();
        if (::mkdtemp(pattern.data()) == nullptr) {
            throw system_error("create", pattern);
        }
        path_ = pattern;
    }
    ProcessDirectory(const ProcessDirectory&) = delete;
    ProcessDirectory& operator=(const ProcessDirectory&) = delete;
    ~ProcessDirectory() {
        if (owner_ == ::getpid()) { // not in a forked child
            std::error_code ignored;
            std::filesystem::remove_all(path_, ignored);
        }
    }

    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

private:
    static bool is_dead(std::string_view process) {
        int id = 0;
        std::from_chars(process.data(), process.data() + process.size(), id);
        return id > 0 && ::kill(id, 0) != 0 && errno == ESRCH;
    }

    pid_t owner_;
    std::filesystem::path path_;
};

} // namespace rtrain::storage
