// SPDX-License-Identifier: Apache-2.0
/// @file
/// DriverNotifier: reports the run's progress to the driver, which uses it to recognize repeated
/// failures at the same place.
#pragma once

#include <rtrain/journal/observer.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/launch/session.hpp>

#include <string>

namespace rtrain {

class DriverNotifier : public track::Observer {
public:
    /// `session` outlives this object.
    explicit DriverNotifier(launch::Session& session) : session_(session) {}

    [[nodiscard]] std::string name() const override { return "the driver"; }

    void started(const track::Started& event) override {
        session_.tell(launch::event::Training{event.checkpoint});
    }
    void saved(const track::Saved& event) override {
        session_.tell(launch::event::Saved{.checkpoint = event.checkpoint,
                                           .iteration = track::number_of(event.line)});
    }

private:
    launch::Session& session_;
};

} // namespace rtrain
