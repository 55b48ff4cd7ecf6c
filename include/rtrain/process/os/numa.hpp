// SPDX-License-Identifier: Apache-2.0
/// @file
/// The NUMA node that this process is bound to. Cost tier 0: std only.
#pragma once

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>

#include <sched.h>

namespace rtrain::detail {

/// True if a list of cores in Linux's format, such as "0-3,8", has one that is in `cores`.
[[nodiscard]] inline bool has_any_core(const std::string& list, const cpu_set_t& cores) {
    const char* at = list.data();
    const char* const end = at + list.size();
    while (at != end) {
        std::size_t first = 0;
        auto [next, error] = std::from_chars(at, end, first);
        if (error != std::errc()) {
            return false;
        }
        std::size_t last = first;
        if (next != end && *next == '-') {
            next = std::from_chars(next + 1, end, last).ptr;
        }
        for (std::size_t core = first; core <= last && core < CPU_SETSIZE; ++core) {
            if (CPU_ISSET(core, &cores)) {
                return true;
            }
        }
        at = next != end ? next + 1 : end;
    }
    return false;
}

/// The NUMA node with all cores that this thread may run on; 0 if the system has no NUMA, empty if
/// they are on several nodes. `nodes`: the directory where Linux describes them.
[[nodiscard]] inline std::optional<int>
numa_node(const std::filesystem::path& nodes = "/sys/devices/system/node") {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (::sched_getaffinity(0, sizeof cores, &cores) != 0) {
        return std::nullopt;
    }
    std::optional<int> found;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(nodes, ignored)) {
        const std::string name = entry.path().filename();
        std::string list;
        if (!name.starts_with("node") ||
            !std::getline(std::ifstream(entry.path() / "cpulist") >> std::ws, list) ||
            !has_any_core(list, cores)) {
            continue;
        }
        if (found) {
            return std::nullopt;
        }
        found = std::stoi(name.substr(4));
    }
    return found.value_or(0);
}

} // namespace rtrain::detail
