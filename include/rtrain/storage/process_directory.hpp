// SPDX-License-Identifier: Apache-2.0
/// @file
/// A directory that lives as long as a process.
#pragma once

#include <rtrain/error.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/storage/process.hpp>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <sys/types.h>
#include <unistd.h>

namespace rtrain::storage {

/// Made new, for this user only; the destructor removes it with all in it. Those of processes that
/// were killed are removed by the next process that makes one.
class ProcessDirectory {
public:
    /// `<base>/<name>-<user>-<process>-<random>`. Throws StorageError [RT-S1].
    ProcessDirectory(const std::filesystem::path& base, const std::string& name)
        : owner_(::getpid()) {
        sweep(base, name);
        std::string pattern = (base / detail::concat(prefix(name), owner_, "-XXXXXX")).string();
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

    /// Removes such directories of processes that were killed.
    static void sweep(const std::filesystem::path& base, const std::string& name) {
        const std::string ours = prefix(name);
        std::error_code ignored;
        for (const auto& entry : std::filesystem::directory_iterator(base, ignored)) {
            const std::string other = entry.path().filename().string();
            if (!other.starts_with(ours)) {
                continue;
            }
            pid_t process = 0;
            const std::string_view number = std::string_view(other).substr(ours.size());
            std::from_chars(number.data(), number.data() + number.size(), process);
            if (process > 0 && !process_is_alive(process)) {
                std::filesystem::remove_all(entry.path(), ignored);
            }
        }
    }

private:
    static std::string prefix(const std::string& name) {
        return detail::concat(name, '-', ::getuid(), '-');
    }

    pid_t owner_;
    std::filesystem::path path_;
};

} // namespace rtrain::storage
