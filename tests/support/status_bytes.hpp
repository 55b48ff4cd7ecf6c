// SPDX-License-Identifier: Apache-2.0
/// @file
/// What Linux says about this process's memory.
#pragma once

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>

namespace test {

/// A line of /proc/self/status, such as VmRSS, in bytes.
inline std::int64_t status_bytes(const std::string& name) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with(name + ":")) {
            return std::stoll(line.substr(name.size() + 1)) * 1024;
        }
    }
    throw std::runtime_error("/proc/self/status does not say " + name);
}

} // namespace test
