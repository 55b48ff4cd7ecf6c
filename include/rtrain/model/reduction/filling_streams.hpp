// SPDX-License-Identifier: Apache-2.0
/// @file
/// The streams of a device that fill a bucket. Backward runs a parameter's hook on the stream that
/// its forward used, so several may fill one bucket.
#pragma once

#include <rtrain/comm/device/stream_order.hpp>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <vector>

namespace rtrain::detail {

class FillingStreams {
public:
    /// Records that the current stream fills the bucket. The CPU has no streams.
    void note(at::Device device) {
        if (device.is_cpu()) {
            return;
        }
        const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
        if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
            streams_.push_back(stream);
        }
    }

    /// Makes the current stream wait for the others, and removes them.
    void join() {
        for (const c10::Stream& stream : streams_) {
            const c10::impl::VirtualGuardImpl guard(stream.device_type());
            if (const c10::Stream current = guard.getStream(stream.device()); current != stream) {
                comm::order_streams(stream, current);
            }
        }
        streams_.clear();
    }

private:
    std::vector<c10::Stream> streams_;
};

} // namespace rtrain::detail
