// SPDX-License-Identifier: Apache-2.0
/// @file
/// The autocast settings of a thread, to run code under them later.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstddef>

namespace rtrain::detail {

/// The autocast settings of the constructing thread.
class AutocastState {
public:
    AutocastState() : caches_(at::autocast::is_autocast_cache_enabled()) {
        for (std::size_t i = 0; i < devices.size(); ++i) {
            enabled_[i] = at::autocast::is_autocast_enabled(devices[i]);
            types_[i] = at::autocast::get_autocast_dtype(devices[i]);
        }
    }

    void enter() const {
        at::autocast::set_autocast_cache_enabled(caches_);
        for (std::size_t i = 0; i < devices.size(); ++i) {
            at::autocast::set_autocast_enabled(devices[i], enabled_[i]);
            at::autocast::set_autocast_dtype(devices[i], types_[i]);
        }
    }

private:
    static constexpr std::array devices{at::kCPU, at::kCUDA};

    bool caches_;
    std::array<bool, devices.size()> enabled_{};
    std::array<at::ScalarType, devices.size()> types_{};
};

/// Applies the autocast settings of `state` to this thread while it lives, with a separate cache.
class AutocastAs {
public:
    explicit AutocastAs(const AutocastState& state) {
        at::autocast::clear_cache();
        state.enter();
        at::autocast::increment_nesting();
    }
    AutocastAs(const AutocastAs&) = delete;
    AutocastAs& operator=(const AutocastAs&) = delete;
    ~AutocastAs() {
        at::autocast::decrement_nesting();
        at::autocast::clear_cache();
        before_.enter();
    }

private:
    AutocastState before_;
};

} // namespace rtrain::detail
