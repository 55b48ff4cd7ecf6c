// SPDX-License-Identifier: Apache-2.0
/// @file
/// Running programs of ours as a user does, and looking at what they leave.
#pragma once

#include "files.hpp"
#include "thrown.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

#include <sys/wait.h>

namespace test {

struct Ended {
    int status = 0;
    std::string output; ///< standard output, then standard error
};

inline Ended run(const std::string& command) {
    std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    Ended result;
    std::array<char, 4096> buffer{};
    for (std::size_t got; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
        result.output.append(buffer.data(), got);
    }
    const int raw = ::pclose(pipe);
    result.status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    return result;
}

/// Under mpirun, with more ranks than cores if need be; `limited` runs mpirun.
inline Ended run_on(int ranks, const std::string& command,
                    const std::string& limited = "timeout 60") {
    return run("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " + limited +
               " " RTRAIN_MPIRUN " -n " + std::to_string(ranks) +
               " --oversubscribe --bind-to none " + command);
}

/// What runs a command and sends it a signal as soon as a file is there, or after a minute; SIGKILL
/// 20 s later.
inline std::string signalled(const std::string& signal, const std::filesystem::path& file) {
    const std::string until = R"(wait_for() { tries=0
                                   until "$@" || ! kill -0 $$ || [ $tries = $limit ]; do
                                     tries=$((tries + 1)); sleep 0.05
                                   done
                                 }
                                 )";
    return "sh -c '(" + until + "limit=1200 wait_for test -e " + file.string() + "; kill -" +
           signal +
           " $$; limit=400 wait_for false; kill -KILL $$) >/dev/null 2>&1 & exec \"$@\"' sh";
}

inline int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
        ++found;
    }
    return found;
}

/// Nothing of the run is left: no process with its storage path as its last argument.
inline bool no_process_is_left(const Directory& storage) {
    for (int tries = 0; tries < 50; ++tries) {
        if (run("pgrep -f '(scenario|validating|hanging) .*" + storage.path().filename().string() +
                "$'")
                .output.empty()) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
}

} // namespace test
