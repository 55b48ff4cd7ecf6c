// SPDX-License-Identifier: Apache-2.0
/// @file
/// Appends to DIRECTORY/marks what each rank comes by, also when it is killed the moment after:
/// `<seconds since 1970> <rank> <process> <what> <step>`.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <unistd.h>

class Marks {
public:
    explicit Marks(const std::string& directory)
        : file_(::open((directory + "/marks").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                       0666)) {}
    void add(int rank, const char* what, long step = 0) const {
        const double now =
            std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
                .count();
        char line[128];
        const int length = std::snprintf(line, sizeof line, "%.6f %d %d %s %ld\n", now, rank,
                                         static_cast<int>(::getpid()), what, step);
        if (::write(file_, line, static_cast<std::size_t>(length)) != length) {
            std::abort();
        }
    }

private:
    int file_;
};
