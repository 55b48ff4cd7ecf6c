// SPDX-License-Identifier: Apache-2.0
/// @file
/// Owner: which process has made an object. A process that it forks has copies of its objects, but
/// neither its threads nor its part in MPI, and must not act for it. Cost tier 0: std only.
#pragma once

#include <rtrain/base/console.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include <unistd.h>

namespace rtrain::process {

class Owner {
public:
    [[nodiscard]] bool is_this_process() const noexcept { return process_ == ::getpid(); }

private:
    pid_t process_ = ::getpid();
};

/// Calls `function()`. A process that was forked within it and comes back from it ends here, as it
/// would behind main(): with 0 when it returns, with 1 when it throws.
template <class F>
void call_in_this_process(F&& function) {
    const Owner owner;
    const auto end_others = [&owner](int status, const char* thrown) {
        if (owner.is_this_process()) {
            return;
        }
        if (thrown != nullptr) {
            console::error("process %d, which this function has forked, threw: %s",
                           static_cast<int>(::getpid()), thrown);
        }
        std::fflush(nullptr);
        ::_exit(status); // what runs at exit is the rank's
    };
    try {
        std::forward<F>(function)();
    } catch (const std::exception& error) {
        end_others(EXIT_FAILURE, error.what());
        throw;
    } catch (...) {
        end_others(EXIT_FAILURE, "an object not derived from std::exception");
        throw;
    }
    end_others(EXIT_SUCCESS, nullptr);
}

} // namespace rtrain::process
