// SPDX-License-Identifier: Apache-2.0
/// @file
/// DriverDisplay: rank 0's progress display, drawn by the driver, which owns the terminal and the
/// output of all ranks.
#pragma once

#include <rtrain/console/display.hpp>
#include <rtrain/launch/control/bar_event.hpp>
#include <rtrain/launch/session.hpp>

#include <chrono>
#include <string>
#include <string_view>

namespace rtrain::launch {

class DriverDisplay final : public console::Display {
public:
    /// `session` outlives this object.
    explicit DriverDisplay(Session& session) : session_(session) {}

    [[nodiscard]] bool is_terminal() const override { return session_.driver_columns() > 0; }
    [[nodiscard]] int columns() const override {
        constexpr int usual = 80;
        return is_terminal() ? session_.driver_columns() : usual;
    }

    void print(std::string_view lines) override { session_.tell(event::Shown{std::string(lines)}); }
    /// A driver that lags behind gets only later ones.
    void show(const console::Progress& now) override { session_.tell_unless_behind(to_event(now)); }
    void take_off() override { print(""); }
    bool drain(std::chrono::milliseconds limit) override { return session_.flush(limit); }

private:
    Session& session_;
};

} // namespace rtrain::launch
