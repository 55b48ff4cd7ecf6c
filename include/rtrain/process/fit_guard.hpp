// SPDX-License-Identifier: Apache-2.0
/// @file
/// Allows one fit() call at a time in a process. Status (rank_status.hpp), preemption notice
/// (preemption_notice.hpp) and current call (launch/session.hpp) are singletons. Cost tier 0: std
/// only.
#pragma once

#include <rtrain/base/error.hpp>

#include <atomic>

namespace rtrain::detail {

/// While one exists, this process trains, or validates checkpoints.
class FitGuard {
public:
    /// Throws like require_none().
    FitGuard() {
        if (begun().exchange(true)) {
            refuse();
        }
    }
    FitGuard(const FitGuard&) = delete;
    FitGuard& operator=(const FitGuard&) = delete;
    ~FitGuard() { begun().store(false); }

    /// Throws ConfigError [RT-C23] while one exists.
    static void require_none() {
        if (begun().load()) {
            refuse();
        }
    }

private:
    [[noreturn]] static void refuse() {
        throw ConfigError("RT-C23", "fit() was called inside a training or validation function, or "
                                    "in another thread while one runs; a process trains once at a "
                                    "time: call fit() in main(), before or after the other call");
    }
    static std::atomic<bool>& begun() noexcept {
        static std::atomic<bool> value{false};
        return value;
    }
};

} // namespace rtrain::detail
