// SPDX-License-Identifier: Apache-2.0
/// @file
/// CallSource: where ranks that serve calls get them: the calls of a CreatorTrainer from the driver
/// or their own main(), the trials of a search from its process.
#pragma once

#include <rtrain/launch/calls/call.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

namespace rtrain::launch {

class CallSource {
public:
    CallSource() = default;
    CallSource(const CallSource&) = delete;
    CallSource& operator=(const CallSource&) = delete;
    virtual ~CallSource() = default;

    /// Waits for the newest call, if its number is at least `number`; empty on timeout. A call is
    /// returned again until a newer one arrives, because ranks may start over.
    [[nodiscard]] virtual std::optional<Call> wait(std::int64_t number,
                                                   std::chrono::milliseconds limit) = 0;
    /// All ranks are about to perform the call.
    virtual void begun(const Call& /*call*/) {}
    /// All ranks give the same answer.
    virtual void answer(const CallReply& answer) = 0;
};

} // namespace rtrain::launch
