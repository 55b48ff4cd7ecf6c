// SPDX-License-Identifier: Apache-2.0
/// @file
/// The resources of this machine for trials.
#pragma once

#include <rtrain/tune/resources/resources.hpp>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <sched.h>
#include <unistd.h>

namespace rtrain::detail {

/// Number of GPUs that this process may use, as far as known without CUDA.
[[nodiscard]] inline int gpus_of_this_machine() {
    if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
        const std::string list = visible;
        return list.empty() || list == "-1"
                   ? 0
                   : static_cast<int>(std::count(list.begin(), list.end(), ',')) + 1;
    }
    int count = 0;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator("/dev", none)) {
        const std::string name = entry.path().filename().string();
        constexpr std::string_view device = "nvidia";
        count += static_cast<int>(name.size() > device.size() && name.starts_with(device) &&
                                  std::isdigit(static_cast<unsigned char>(name[device.size()])));
    }
    return count;
}

/// CUDA_VISIBLE_DEVICES for a process with these of the GPUs that this process may use.
[[nodiscard]] inline std::string visible_devices_of(const std::vector<int>& gpus) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return tune::visible_devices(gpus, visible != nullptr ? std::optional<std::string>(visible)
                                                          : std::nullopt);
}

/// Numbers of the cores that this thread may run on.
[[nodiscard]] inline std::vector<int> cores_of_this_machine() {
    std::vector<int> cores;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) == 0) {
        for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
            if (CPU_ISSET(core, &set)) {
                cores.push_back(static_cast<int>(core));
            }
        }
    }
    return cores;
}

/// For its lifetime, this thread and the processes that it starts are bound to these cores; none:
/// no binding. It is not an error if the machine forbids that.
class OnCores {
public:
    explicit OnCores(const std::vector<int>& cores) {
        cpu_set_t set;
        CPU_ZERO(&set);
        for (const int core : cores) {
            CPU_SET(static_cast<std::size_t>(core), &set);
        }
        is_bound_ = !cores.empty() && ::sched_getaffinity(0, sizeof before_, &before_) == 0 &&
                    ::sched_setaffinity(0, sizeof set, &set) == 0;
    }
    OnCores(const OnCores&) = delete;
    OnCores& operator=(const OnCores&) = delete;
    ~OnCores() {
        if (is_bound_) {
            (void)::sched_setaffinity(0, sizeof before_, &before_);
        }
    }

private:
    cpu_set_t before_{};
    bool is_bound_ = false;
};

/// Memory available to this process, in bytes: the machine's, or the limit of its container.
[[nodiscard]] inline std::uint64_t memory_of_this_machine() {
    const auto pages = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES)));
    auto bytes = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    for (const char* const limit :
         {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
        std::ifstream file(limit); // may hold "max", or not exist
        if (std::uint64_t number = 0; file >> number) {
            bytes = std::min(bytes, number);
        }
    }
    return bytes;
}

[[nodiscard]] inline tune::Machine this_machine() {
    return {.cpus = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
            .gpus = gpus_of_this_machine()};
}

} // namespace rtrain::detail
