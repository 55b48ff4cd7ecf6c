// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door tensorboard.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/text/wall_clock.hpp>
#include <rtrain/track/lines/metrics.hpp>
#include <rtrain/track/tensorboard/event_file.hpp>
#include <rtrain/track/tensorboard/event_series.hpp>
#include <rtrain/track/tensorboard/event_values.hpp>
#include <rtrain/track/tensorboard/tensorboard.hpp>

#include <utility>

namespace rtrain::track {

RTRAIN_DOOR TensorBoard::TensorBoard(std::string directory) : directory_(std::move(directory)) {}
RTRAIN_DOOR TensorBoard::TensorBoard(TensorBoard&&) noexcept = default;
RTRAIN_DOOR TensorBoard& TensorBoard::operator=(TensorBoard&&) noexcept = default;
RTRAIN_DOOR TensorBoard::~TensorBoard() = default;

RTRAIN_DOOR void TensorBoard::start(const RunInfo& info) {
    run_ = info;
}

RTRAIN_DOOR Position TensorBoard::rewind(Position position) {
    const auto settings = event::Message().bytes(
        1, event::hyperparameters(run_.config, run_.name, rtrain::detail::seconds_since_1970()));
    const auto directory = run_.directory / directory_;
    reports_ = std::make_unique<EventSeries>(directory);
    steps_ = std::make_unique<EventSeries>(directory / "steps");
    position.iteration = reports_->rewind(position.iteration, settings);
    position.step = steps_->has_begun() ? steps_->rewind(position.step) : 0;
    return position;
}

RTRAIN_DOOR void TensorBoard::write(const Line& line) {
    event::Message summary;
    visit_metrics(line, [&](const std::string& name, const boost::json::value& metric) {
        if (const std::string value = event::value_of(name, metric); !value.empty()) {
            summary.bytes(1, value);
        }
    });
    if (line.is_step && !steps_->is_open()) { // a run without steps has no directory for them
        steps_->rewind(0);
    }
    (line.is_step ? steps_ : reports_)->append(line.time_s, line.number, summary);
}

RTRAIN_DOOR void TensorBoard::finish() {
    reports_.reset();
    steps_.reset();
}

} // namespace rtrain::track
