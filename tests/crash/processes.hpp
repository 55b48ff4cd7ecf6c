// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs many small checks in forked processes, so that one that crashes or hangs is one failure.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crash {

/// A directory in memory for this process and its children, removed at the end.
class Scratch {
public:
    Scratch() {
        const std::filesystem::path memory = "/dev/shm";
        const bool usable = ::access(memory.c_str(), W_OK) == 0;
        path_ = (usable ? memory : std::filesystem::temp_directory_path()) /
                ("rtrain-crash-" + std::to_string(::getpid()));
        std::filesystem::create_directories(path_);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

/// An empty directory.
inline std::filesystem::path fresh(const std::filesystem::path& directory) {
    std::filesystem::remove_all(directory);
    std::filesystem::create_directories(directory);
    return directory;
}

/// What one check found wrong, a line each; empty: nothing.
using Check = std::function<std::vector<std::string>(std::size_t index, int lane)>;

namespace detail {

struct Lane {
    pid_t child = 0;
    int pipe = -1;
    std::size_t next = 0; ///< the check that the child is at
    std::string received{};
};

constexpr char end_of_check = '\x1e';
constexpr unsigned most_seconds = 60; ///< for one check

inline void start(Lane& lane, int number, int lanes, std::size_t count, const Check& check) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0 || (lane.child = ::fork()) < 0) {
        std::perror("crash tests cannot start a process");
        std::abort();
    }
    if (lane.child == 0) {
        const int nowhere = ::open("/dev/null", O_WRONLY);
        ::dup2(nowhere, STDERR_FILENO); // warnings are expected in thousands
        for (std::size_t i = lane.next; i < count; i += static_cast<std::size_t>(lanes)) {
            ::alarm(most_seconds);
            std::string text;
            for (const std::string& line : check(i, number)) {
                text += line + "\n";
            }
            text += end_of_check;
            for (std::size_t sent = 0; sent < text.size();) {
                const ssize_t n = ::write(ends[1], text.data() + sent, text.size() - sent);
                if (n < 0) {
                    ::_exit(3);
                }
                sent += static_cast<std::size_t>(n);
            }
        }
        ::_exit(0);
    }
    ::close(ends[1]);
    lane.pipe = ends[0];
    lane.received.clear();
}

} // namespace detail

/// Calls `check(0)` to `check(count - 1)` in `lanes` processes at a time; gives `done` what each
/// found.
inline void
in_children(std::size_t count, int lanes, const Check& check,
            const std::function<void(std::size_t, const std::vector<std::string>&)>& done) {
    std::fflush(nullptr);
    std::vector<detail::Lane> all(static_cast<std::size_t>(lanes));
    std::vector<pollfd> polled;
    for (int i = 0; i < lanes; ++i) {
        auto& lane = all[static_cast<std::size_t>(i)];
        lane.next = static_cast<std::size_t>(i);
        detail::start(lane, i, lanes, count, check);
        polled.push_back({lane.pipe, POLLIN, 0});
    }
    int open = lanes;
    while (open > 0) {
        ::poll(polled.data(), polled.size(), -1);
        for (int i = 0; i < lanes; ++i) {
            auto& lane = all[static_cast<std::size_t>(i)];
            auto& poll = polled[static_cast<std::size_t>(i)];
            if (poll.fd < 0 || poll.revents == 0) {
                continue;
            }
            char buffer[65536];
            const ssize_t got = ::read(lane.pipe, buffer, sizeof buffer);
            for (ssize_t at = 0; at < got; ++at) {
                if (buffer[at] != detail::end_of_check) {
                    lane.received += buffer[at];
                    continue;
                }
                std::vector<std::string> lines;
                for (std::size_t begin = 0; begin < lane.received.size();) {
                    const auto end = lane.received.find('\n', begin);
                    lines.push_back(lane.received.substr(begin, end - begin));
                    begin = end + 1;
                }
                lane.received.clear();
                done(lane.next, lines);
                lane.next += static_cast<std::size_t>(lanes);
            }
            if (got > 0) {
                continue;
            }
            int status = 0;
            ::waitpid(lane.child, &status, 0);
            ::close(lane.pipe);
            poll.fd = -1;
            --open;
            if (lane.next < count) { // it has died
                done(lane.next, {std::string("died: ") +
                                 (WIFSIGNALED(status) ? ::strsignal(WTERMSIG(status)) : "exit")});
                lane.next += static_cast<std::size_t>(lanes);
                detail::start(lane, i, lanes, count, check);
                poll = {lane.pipe, POLLIN, 0};
                ++open;
            }
        }
    }
}

} // namespace crash
