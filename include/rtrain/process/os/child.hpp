// SPDX-License-Identifier: Apache-2.0
/// @file
/// Starts another program with its output in pipes.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/text/strict_stream.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ; // NOLINT: POSIX

namespace rtrain::launch {

/// Finds a program on PATH. Relative and empty entries are ignored, because anything in the working
/// directory could replace the program.
[[nodiscard]] inline std::optional<std::filesystem::path> find_program(const std::string& name) {
    const char* const variable = std::getenv("PATH");
    const std::string path = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
    for (std::size_t begin = 0; begin <= path.size();) {
        const std::size_t end = std::min(path.find(':', begin), path.size());
        const std::filesystem::path directory = path.substr(begin, end - begin);
        const auto candidate = directory / name;
        std::error_code error;
        if (directory.is_absolute() && std::filesystem::is_regular_file(candidate, error) &&
            ::access(candidate.c_str(), X_OK) == 0) {
            return candidate;
        }
        begin = end + 1;
    }
    return std::nullopt;
}

/// This process's program and arguments, to start it again while it runs.
[[nodiscard]] inline std::vector<std::string> own_command_line() {
    auto file = detail::strict(std::ifstream("/proc/self/cmdline", std::ios::binary));
    std::vector<std::string> words;
    for (std::string word; std::getline(file, word, '\0');) {
        words.push_back(word);
    }
    if (words.empty()) {
        words.emplace_back();
    }
    words[0] = std::filesystem::read_symlink("/proc/self/exe").string();
    if (::access(words[0].c_str(), X_OK) != 0) { // rebuilt, perhaps; the running one still exists
        words[0] = detail::concat("/proc/", ::getpid(), "/exe");
    }
    return words;
}

/// Quotes a word for a shell.
[[nodiscard]] inline std::string quoted(const std::string& word) {
    constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_-+=.,:/@%";
    if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) {
        return word;
    }
    std::string text = "'";
    for (const char c : word) {
        text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return text + '\'';
}

/// This process's environment as "NAME=value", with `variables` set and without the settings for
/// which `drop` returns true.
[[nodiscard]] inline std::vector<std::string>
environment_with(const std::map<std::string, std::string>& variables,
                 bool (*drop)(std::string_view setting) = nullptr) {
    std::vector<std::string> settings;
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string setting(*variable);
        if (!variables.contains(setting.substr(0, setting.find('='))) &&
            (drop == nullptr || !drop(setting))) {
            settings.push_back(setting);
        }
    }
    for (const auto& [name, value] : variables) {
        settings.push_back(name + "=" + value);
    }
    return settings;
}

/// Arguments for exec: pointers to the strings, then a null.
[[nodiscard]] inline std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
    std::vector<char*> result;
    result.reserve(strings.size() + 1);
    for (const std::string& text : strings) {
        result.push_back(const_cast<char*>(text.c_str()));
    }
    result.push_back(nullptr);
    return result;
}

/// A running program. It gets SIGTERM when this process dies.
struct Child {
    pid_t pid = -1;
    int out = -1; ///< read end of its standard output
    int err = -1; ///< read end of its standard error

    /// Starts `words`, with variables added to this process's environment. `shares_input`: it reads
    /// this process's standard input; otherwise /dev/null.
    [[nodiscard]] static Child start(const std::vector<std::string>& words,
                                     const std::map<std::string, std::string>& variables,
                                     bool shares_input = true) {
        // All memory is allocated before fork(): another thread may hold the allocator's lock.
        const auto settings = environment_with(variables);
        const auto arguments = pointers_to(words);
        const auto environment = pointers_to(settings);
        int out[2];
        int err[2];
        const bool has_out = ::pipe2(out, O_CLOEXEC) == 0;
        if (!has_out || ::pipe2(err, O_CLOEXEC) != 0) {
            const int error = errno;
            if (has_out) {
                ::close(out[0]);
                ::close(out[1]);
            }
            throw LaunchError("RT-L1",
                              detail::concat("cannot create a pipe: ", std::strerror(error)));
        }
        const pid_t parent = ::getpid();
        const pid_t pid = ::fork();
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGTERM);
            if (::getppid() != parent) {
                ::_exit(127);
            }
            ::setpgid(0, 0); // Ctrl-C reaches the driver only, which forwards it once
            if (!shares_input) {
                ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
            }
            ::dup2(out[1], STDOUT_FILENO);
            ::dup2(err[1], STDERR_FILENO);
            ::execve(arguments[0], arguments.data(), environment.data());
            ::_exit(127);
        }
        ::close(out[1]);
        ::close(err[1]);
        if (pid < 0) {
            ::close(out[0]);
            ::close(err[0]);
            throw LaunchError(
                "RT-L1", detail::concat("cannot start ", words[0], ": ", std::strerror(errno)));
        }
        ::setpgid(pid, pid); // here, too: a signal to the group may follow immediately
        return {pid, out[0], err[0]};
    }
};

} // namespace rtrain::launch
