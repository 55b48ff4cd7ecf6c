// SPDX-License-Identifier: Apache-2.0
/// @file
/// Other processes of this machine, from /proc.
/// Cost tier 0: std only.
#pragma once

#include <fstream>
#include <string>

#include <sys/types.h>

namespace rtrain::storage {

/// The state of a process: 'R' runs, 'S' and 'D' sleep, 'T' is stopped, 'Z' has ended and was not
/// reaped; 0 if it does not exist.
[[nodiscard]] inline char process_state(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string text;
    std::getline(file, text);
    const auto name_end = text.rfind(')'); // the name may contain anything
    return name_end == std::string::npos || name_end + 2 >= text.size() ? '\0' : text[name_end + 2];
}

[[nodiscard]] inline bool process_is_alive(pid_t process) {
    const char state = process_state(process);
    return state != '\0' && state != 'Z' && state != 'X';
}

} // namespace rtrain::storage
