// SPDX-License-Identifier: Apache-2.0
/// @file
/// Work of a device that is recorded once and replayed as a whole.
#pragma once

#include <functional>

namespace rtrain::comm {

/// Has a stream of its own, which waits for the current stream and which that waits for.
class DeviceGraph {
public:
    DeviceGraph() = default;
    DeviceGraph(const DeviceGraph&) = delete;
    DeviceGraph& operator=(const DeviceGraph&) = delete;
    virtual ~DeviceGraph() = default;

    /// Calls `work` with that stream as the current one.
    virtual void run(const std::function<void()>& work) = 0;
    /// Calls `work`; what it puts on the device is recorded instead of run. Throws what `work` and
    /// the device throw; records nothing then.
    virtual void record(const std::function<void()>& work) = 0;
    /// Puts what was recorded on the stream.
    virtual void replay() = 0;
};

} // namespace rtrain::comm
