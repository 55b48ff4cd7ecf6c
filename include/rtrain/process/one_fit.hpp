// SPDX-License-Identifier: Apache-2.0
/// @file
/// One fit() call at a time in a process. What a process tells about itself (rank_status.hpp), what
/// it is told (preemption_notice.hpp) and which fit() call it is in (launch/session.hpp) exist
/// once. Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>

#include <atomic>

namespace rtrain::detail {

/// While one lives, this process trains, or validates checkpoints.
class OneFit {
public:
    /// Throws what require_none() throws.
    OneFit() {
        if (begun().exchange(true)) {
            refuse();
        }
    }
    OneFit(const OneFit&) = delete;
    OneFit& operator=(const OneFit&) = delete;
    ~OneFit() { begun().store(false); }

    /// Throws ConfigError [RT-C23] while one lives.
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
