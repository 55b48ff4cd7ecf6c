// SPDX-License-Identifier: Apache-2.0
/// @file
/// Processor time of this process and of its children.
/// Cost tier 0: std only.
#pragma once

#include <charconv>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rtrain::process {

namespace internal {

/// The integers in a text, separated by spaces.
[[nodiscard]] inline std::vector<long long> numbers_in(std::string_view text) {
    std::vector<long long> numbers;
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at != end;) {
        long long number = 0;
        const auto [next, error] = std::from_chars(at, end, number);
        if (error == std::errc{}) {
            numbers.push_back(number);
        }
        at = next == at ? at + 1 : next;
    }
    return numbers;
}

[[nodiscard]] inline std::string text_of(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

/// Processor time of a process, and of its children that have ended.
[[nodiscard]] inline double time_of_process_s(long long process) {
    const std::string text = text_of("/proc/" + std::to_string(process) + "/stat");
    const std::size_t name_end = text.rfind(')'); // the name may contain anything
    if (name_end == std::string::npos) {
        return 0;
    }
    const auto numbers = numbers_in(std::string_view(text).substr(name_end));
    constexpr std::size_t first = 10; // of utime, stime, cutime, cstime, after the state
    long long ticks = 0;
    for (std::size_t i = first; i < first + 4 && i < numbers.size(); ++i) {
        ticks += numbers[i];
    }
    return static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

/// Processor time of the running descendants of a process.
[[nodiscard]] inline double time_below_s(long long process) {
    double sum = 0;
    std::error_code error;
    const std::filesystem::path tasks = "/proc/" + std::to_string(process) + "/task";
    for (std::filesystem::directory_iterator task(tasks, error), end; !error && task != end;
         task.increment(error)) {
        for (const long long child : numbers_in(text_of(task->path() / "children"))) {
            sum += time_of_process_s(child) + time_below_s(child);
        }
    }
    return sum;
}

[[nodiscard]] inline double seconds_of(const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

} // namespace internal

/// Processor time of another process and of its descendants.
[[nodiscard]] inline double processor_time_of_s(pid_t process) {
    return internal::time_of_process_s(process) + internal::time_below_s(process);
}

/// Processor time of all descendants of this process.
[[nodiscard]] inline double processor_time_of_children_s() {
    siginfo_t info{};
    rusage ended{};
    ::getrusage(RUSAGE_CHILDREN, &ended);
    const bool some_run = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
    return internal::seconds_of(ended.ru_utime) + internal::seconds_of(ended.ru_stime) +
           (some_run ? internal::time_below_s(::getpid()) : 0);
}

/// Processor time of this process, and of its descendants, at most a second old.
[[nodiscard]] inline double processor_time_s() {
    using Clock = std::chrono::steady_clock;
    static std::mutex mutex;
    static Clock::time_point measured;
    static double of_children = 0;
    const std::lock_guard lock(mutex);
    if (const auto now = Clock::now(); now - measured > std::chrono::seconds(1)) {
        measured = now;
        of_children = processor_time_of_children_s();
    }
    timespec own{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    return static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec) + of_children;
}

} // namespace rtrain::process
