// SPDX-License-Identifier: Apache-2.0
/// @file
/// TensorBoard: writes the reports of a run as event files, for `tensorboard --logdir`. Numbers are
/// scalars, texts are texts, arrays of numbers are histograms, results of track::image() are
/// images, and TrainerOptions::config is in the HPARAMS tab. Each start of the run writes its own
/// file, which begins with a START event, so that readers discard superseded steps.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/tracker.hpp>

#include <memory>
#include <string>

namespace rtrain::track {

class EventSeries;

/// Writes a run's event files for TensorBoard.
class TensorBoard {
public:
    /// `directory` is relative to the run's directory.
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
#include <rtrain/track/tensorboard/tensorboard_definitions.hpp>
#endif
