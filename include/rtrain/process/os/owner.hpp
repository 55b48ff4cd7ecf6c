// SPDX-License-Identifier: Apache-2.0
/// @file
/// Owner: the process that has created an object. A forked process has copies of its objects, but
/// not its threads or its membership in MPI, and must not act for it. Cost tier 0: std only.
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

/// Calls `function()`. A process that was forked within it and returns from it exits here, as if
/// after main(): with 0 if it returns, with 1 if it throws.
template <class F>
void call_in_this_process(F&& function) {
    const Owner owner;
    const auto end_others = [&owner](int status, const char* thrown) {
        if (owner.is_this_process()) {
            return;
        }
        if (thrown != nullptr) {
            console::error("process %d, forked by this function, threw: %s",
                           static_cast<int>(::getpid()), thrown);
        }
        std::fflush(nullptr);
        ::_exit(status); // exit handlers belong to the rank
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
