// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run's progress, as rank 0 sends it to the driver, which owns the terminal.
#pragma once

#include <rtrain/console/bar.hpp>
#include <rtrain/launch/control/message.hpp>

#include <boost/json/object.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace rtrain::launch {

[[nodiscard]] inline Event to_event(const console::Progress& now) {
    const auto positive = [](double number) {
        return std::isfinite(number) ? std::max(number, 0.0) : 0.0;
    };
    const auto count = [](std::int64_t number) { return std::max<std::int64_t>(number, 0); };
    return {"bar",
            {{"epoch", count(now.epoch)},
             {"epochs", count(now.epochs)},
             {"done", count(now.done)},
             {"total", count(now.total)},
             {"elapsed_s", positive(now.elapsed_s)},
             {"rate", positive(now.rate)},
             {"metrics", now.metrics}}};
}

/// Parses the progress from an event's body.
[[nodiscard]] inline console::Progress progress_from(const boost::json::object& body) {
    const auto count = [&](const char* field) { return body.at(field).to_number<std::int64_t>(); };
    return {.epoch = count("epoch"),
            .epochs = count("epochs"),
            .done = count("done"),
            .total = count("total"),
            .elapsed_s = body.at("elapsed_s").to_number<double>(),
            .rate = body.at("rate").to_number<double>(),
            .metrics = std::string(body.at("metrics").as_string())};
}

} // namespace rtrain::launch
