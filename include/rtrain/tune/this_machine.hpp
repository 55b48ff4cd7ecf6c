// SPDX-License-Identifier: Apache-2.0
/// @file
/// What there is on this machine for trials.
#pragma once

#include <rtrain/tune/resources.hpp>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace rtrain::detail {

/// GPUs that this process may use, as far as that is known without CUDA.
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

[[nodiscard]] inline tune::Machine this_machine() {
    return {.cpus = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
            .gpus = gpus_of_this_machine()};
}

} // namespace rtrain::detail
