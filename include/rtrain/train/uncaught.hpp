// SPDX-License-Identifier: Apache-2.0
/// @file
/// Handler for an rtrain::Error that main() does not catch: prints its text once, and exits with
/// code 1. With std::abort(), MPI would print the stack of rtrain's internals.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/process/os/environment.hpp>
#include <rtrain/process/stdio/output_tee.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <unistd.h>

namespace rtrain::detail {

/// True on the rank that prints for all of them: the lowest whose process has not died.
[[nodiscard]] inline bool prints_for_all(const TrainingFailedError& error) {
    int first = 0;
    while (std::find(error.died().begin(), error.died().end(), first) != error.died().end()) {
        ++first;
    }
    return launch::rank().value_or(0) == first;
}

/// Replaces the standard library's handler, which remains in use for other exceptions.
[[noreturn]] inline void on_uncaught() {
    try {
        if (const auto thrown = std::current_exception()) {
            std::rethrow_exception(thrown);
        }
    } catch (const Error& error) {
        const auto* const failed = dynamic_cast<const TrainingFailedError*>(&error);
        if (failed == nullptr || prints_for_all(*failed)) {
            console::error("%s", error.what());
        }
        std::fflush(nullptr);
        process::OutputTee::settle_current();
        ::_exit(EXIT_FAILURE);
    } catch (...) { // not ours
    }
    __gnu_cxx::__verbose_terminate_handler();
    std::abort();
}

/// Installs it, unless the program has a custom handler.
inline void handle_uncaught_errors() {
    if (std::get_terminate() == &__gnu_cxx::__verbose_terminate_handler) {
        std::set_terminate(&on_uncaught);
    }
}

} // namespace rtrain::detail
