// SPDX-License-Identifier: Apache-2.0
/// @file
/// Device work that is recorded once and replayed as a whole.
#pragma once

#include <functional>

namespace rtrain::comm {

/// Has a separate stream, synchronized with the current stream in both directions.
class DeviceGraph {
public:
    DeviceGraph() = default;
    DeviceGraph(const DeviceGraph&) = delete;
    DeviceGraph& operator=(const DeviceGraph&) = delete;
    virtual ~DeviceGraph() = default;

    /// Calls `work` with that stream as the current one.
    virtual void run(const std::function<void()>& work) = 0;
    /// Calls `work`; its device work is recorded instead of run. Throws the errors of `work` and of
    /// the device; then nothing is recorded.
    virtual void record(const std::function<void()>& work) = 0;
    /// Enqueues the recorded work on the stream.
    virtual void replay() = 0;
};

} // namespace rtrain::comm
