// SPDX-License-Identifier: Apache-2.0
/// @file
/// DriverCalls: the calls that a launched rank gets from its driver.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/launch/calls/call.hpp>
#include <rtrain/launch/calls/call_source.hpp>
#include <rtrain/launch/control/events.hpp>
#include <rtrain/launch/session.hpp>

#include <boost/json/serialize.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

namespace rtrain::launch {

class DriverCalls final : public CallSource {
public:
    /// `session` outlives this object and has a driver.
    explicit DriverCalls(Session& session) : session_(session) {}

    [[nodiscard]] std::optional<Call> wait(std::int64_t number,
                                           std::chrono::milliseconds limit) override {
        const auto sent = session_.answers().wait_for_call(number, limit);
        return sent ? std::optional(call_of(*sent)) : std::nullopt;
    }
    void answer(const CallAnswer& answer) override {
        session_.tell(event::Answer{json::serialize(to_json(answer))});
    }

private:
    Session& session_;
};

} // namespace rtrain::launch
