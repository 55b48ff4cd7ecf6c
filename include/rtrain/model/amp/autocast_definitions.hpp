// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door autocast.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/model/amp/autocast.hpp>

#include <ATen/autocast_mode.h>

namespace rtrain {

RTRAIN_DOOR Autocast::Autocast(at::ScalarType type, at::DeviceType device)
    : device_(device), enabled_before_(at::autocast::is_autocast_enabled(device)),
      type_before_(at::autocast::get_autocast_dtype(device)) {
    if (type != at::kBFloat16 && type != at::kHalf) {
        throw ModelError("RT-M17", detail::concat("autocast computes in BFloat16 or Half, not ",
                                                  c10::toString(type)));
    }
    forget_if_changed(type);
    at::autocast::set_autocast_dtype(device, type);
    at::autocast::set_autocast_enabled(device, true);
    at::autocast::increment_nesting();
}

RTRAIN_DOOR Autocast::~Autocast() {
    if (at::autocast::decrement_nesting() == 0) {
        at::autocast::clear_cache(); // parameters in 16 bits, which the next step changes
    }
    forget_if_changed(at::autocast::get_autocast_dtype(device_));
    at::autocast::set_autocast_enabled(device_, enabled_before_);
    at::autocast::set_autocast_dtype(device_, type_before_);
}

/// torch's cache returns a parameter whatever type it was converted to.
RTRAIN_DOOR void Autocast::forget_if_changed(at::ScalarType type) const {
    if (enabled_before_ && type != type_before_) {
        at::autocast::clear_cache();
    }
}

} // namespace rtrain
