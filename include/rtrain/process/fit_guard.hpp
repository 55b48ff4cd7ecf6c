// SPDX-License-Identifier: Apache-2.0
/// @file
/// Allows one fit() call at a time in a context. Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/context.hpp>

namespace rtrain::detail {

/// While one exists, this process trains, or validates checkpoints.
class FitGuard {
public:
    /// Throws like require_none().
    explicit FitGuard(ProcessContext& context) : context_(context) {
        if (context_.fits.exchange(true)) {
            refuse();
        }
        context_.warned.forget();
    }
    FitGuard(const FitGuard&) = delete;
    FitGuard& operator=(const FitGuard&) = delete;
    ~FitGuard() { context_.fits.store(false); }

    /// Throws ConfigError [RT-C23] while one exists.
    static void require_none(const ProcessContext& context) {
        if (context.fits.load()) {
            refuse();
        }
    }

private:
    [[noreturn]] static void refuse() {
        throw ConfigError("RT-C23", "fit() was called inside a training or validation function, or "
                                    "in another thread while one runs, or while a CreatorTrainer "
                                    "trains in this process; a process trains once at a time: call "
                                    "fit() in main(), before or after the other call, and "
                                    "shutdown() of a CreatorTrainer first");
    }

    ProcessContext& context_;
};

} // namespace rtrain::detail
