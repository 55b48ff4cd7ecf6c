// SPDX-License-Identifier: Apache-2.0
/// @file
/// DriverCalls: the calls that a launched rank gets from its driver.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/launch/calls/call.hpp>
#include <rtrain/launch/calls/call_source.hpp>
#include <rtrain/launch/control/driver_answers.hpp>
#include <rtrain/launch/control/events.hpp>

#include <boost/json/serialize.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace rtrain::launch {

class DriverCalls final : public CallSource {
public:
    /// `driver` outlives this object. `send`: to the driver; empty on all ranks but 0, because
    /// their answers are the same.
    DriverCalls(DriverAnswers& driver, std::function<void(const event::Answer&)> send)
        : driver_(driver), send_(std::move(send)) {}

    [[nodiscard]] std::optional<Call> wait(std::int64_t number,
                                           std::chrono::milliseconds limit) override {
        const auto sent = driver_.wait_for_call(number, limit);
        return sent ? std::optional(call_of(*sent)) : std::nullopt;
    }
    void answer(const CallReply& answer) override {
        if (send_) {
            send_(event::Answer{json::serialize(to_json(answer))});
        }
    }

private:
    DriverAnswers& driver_;
    std::function<void(const event::Answer&)> send_;
};

} // namespace rtrain::launch
