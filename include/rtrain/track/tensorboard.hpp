// SPDX-License-Identifier: Apache-2.0
/// @file
/// TensorBoard: the reports of a run as event files, which `tensorboard --logdir` shows. Numbers
/// are scalars, texts are texts, arrays of numbers are histograms, what track::image() returns are
/// images, and TrainerOptions::config is on the page HPARAMS. Each start of the run writes a file
/// of its own, which begins with a START event, so that readers forget what does not count any
/// more.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/tracker.hpp>

#include <memory>
#include <string>

namespace rtrain::track {

class EventSeries;

/// Writes the event file of a run that TensorBoard reads.
class TensorBoard {
public:
    /// `directory` is relative to the run's.
    explicit TensorBoard(std::string directory = "tensorboard");
    TensorBoard(TensorBoard&&) noexcept;
    TensorBoard& operator=(TensorBoard&&) noexcept;
    ~TensorBoard();

    [[nodiscard]] std::string name() const { return "TensorBoard's " + directory_; }
    [[nodiscard]] std::string output() const { return directory_; }

    void start(const RunInfo& info);
    Position rewind(Position position);
    void write(const Line& line);
    void finish();

private:
    std::string directory_;
    RunInfo run_;
    std::unique_ptr<EventSeries> reports_;
    std::unique_ptr<EventSeries> steps_;
};

} // namespace rtrain::track

#ifndef RTRAIN_COMPILED
#include <rtrain/track/tensorboard_definitions.hpp>
#endif
