// SPDX-License-Identifier: Apache-2.0
/// @file
/// Identifies this machine. Cost tier 0: std only.
#pragma once

#include <array>
#include <fstream>
#include <string>

#include <unistd.h>

namespace rtrain::storage {

/// Changes at each boot of the machine, which loses what the system keeps in memory.
[[nodiscard]] inline std::string boot_id() {
    std::string id;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
    return id;
}

[[nodiscard]] inline std::string host_name() {
    std::array<char, 256> name{};
    (void)::gethostname(name.data(), name.size() - 1);
    return name.data();
}

} // namespace rtrain::storage
