// SPDX-License-Identifier: Apache-2.0
/// @file
/// The order of work on two streams of one device.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace rtrain::comm {

/// Work that `then` gets from now on starts after the work that `first` has now.
inline void order_streams(const c10::Stream& first, const c10::Stream& then) {
    c10::Event reached(first.device_type());
    reached.record(first);
    reached.block(then);
}

} // namespace rtrain::comm
