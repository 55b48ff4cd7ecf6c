// SPDX-License-Identifier: Apache-2.0
/// @file
/// Detects whether the kernel has killed a process because memory ran out. To other processes, such
/// a death looks like any SIGKILL. Cost tier 0: std only.
#pragma once

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace rtrain::launch {

/// N of the line "oom_kill N", as in /proc/vmstat and a cgroup's memory.events and
/// memory.oom_control; empty if there is none.
[[nodiscard]] inline std::optional<std::uint64_t> oom_kills_in(std::string_view text) {
    constexpr std::string_view key = "oom_kill ";
    for (std::size_t at = text.find(key); at != std::string_view::npos;
         at = text.find(key, at + 1)) {
        const bool begins_line = at == 0 || text[at - 1] == '\n';
        const char* const digits = text.data() + at + key.size();
        std::uint64_t count = 0;
        const auto [end, error] = std::from_chars(digits, text.data() + text.size(), count);
        if (begins_line && error == std::errc{} && end != digits) {
            return count;
        }
    }
    return std::nullopt;
}

/// Polls a counter of the kernel. The default counts all such deaths on this machine, including
/// those caused by a cgroup's limit.
///
/// @code
/// const OutOfMemoryWatch memory;
/// // ... a child is killed by signal 9
/// if (memory.has_killed()) { ... }
/// @endcode
class OutOfMemoryWatch {
public:
    /// Counts from now on; without the file, counts nothing.
    explicit OutOfMemoryWatch(std::filesystem::path counter = "/proc/vmstat")
        : counter_(std::move(counter)), before_(read()) {}

    /// True if a process was killed since. The kernel counts before it kills.
    [[nodiscard]] bool has_killed() const {
        const auto now = read();
        return before_ && now && *now > *before_;
    }

private:
    [[nodiscard]] std::optional<std::uint64_t> read() const {
        std::ifstream file(counter_);
        const std::string text(std::istreambuf_iterator<char>(file), {});
        return oom_kills_in(text);
    }

    std::filesystem::path counter_;
    std::optional<std::uint64_t> before_;
};

} // namespace rtrain::launch
