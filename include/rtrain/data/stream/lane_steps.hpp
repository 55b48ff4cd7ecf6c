// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads lanes of rows that are not counted on all ranks together, in equally many batches of equal
/// size: see decisions/0022.
///
/// Each lane belongs to one micro-batch of the step: the lane with turn t to number t %
/// micro_batches, and so to one rank. A micro-batch takes each row from the lane from which the
/// fewest were taken (the first of several). Lanes that have ended are skipped. As long as no lane
/// ends and micro-batches divide lanes, row p of the epoch is in lane p % lanes. Batches depend on
/// the number of micro-batches, not on the number of ranks.
///
/// In each step, ranks exchange whether their batch is complete, and the positions of their lanes.
/// If a micro-batch has too few rows because its lanes have ended, the remaining lanes are dealt
/// out again, those with the fewest rows taken first. When that no longer helps, the last step
/// gives each micro-batch as many rows as the smallest has; later rows are left out.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/order/position.hpp>
#include <rtrain/data/stream/all_reduce_max.hpp>
#include <rtrain/data/stream/batch_sampler.hpp>
#include <rtrain/data/stream/lanes.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace rtrain::data {

/// The part of an epoch that was not read.
struct LeftOut {
    std::int64_t lanes = 0; ///< lanes with more rows
    std::int64_t rows = 0;  ///< source rows left in them; 0 for generators
};

/// The loop's thread calls next() and commit(). Any thread that reads ahead may call read() and
/// read_ahead(), which assume that every step is taken.
class LaneSteps {
public:
    struct Shape {
        std::int64_t lanes = 1;
        std::int64_t rows = 0;          ///< source rows of all lanes; 0: not known
        std::int64_t size = 1;          ///< rows of a batch
        std::int64_t micro_batches = 1; ///< on all ranks in a step
        std::int64_t first = 0;         ///< the first one on this rank
        std::int64_t passes = 1;        ///< micro-batches on this rank
        bool drop_last = false;
        std::int64_t ahead = 0; ///< chunks of lanes that are read ahead
    };

    /// Starts at `places`, where all ranks have taken `taken` rows; empty: at the beginning.
    LaneSteps(const Shape& shape, Lanes lanes, std::vector<LanePosition> places,
              std::int64_t taken);

    /// The next batch of this rank; always valid until commit() ends the epoch.
    [[nodiscard]] BatchRequest next();
    /// Reads its rows; none if the step cannot be taken, which commit() handles.
    [[nodiscard]] Batch read(BatchRequest& portion) { return reader_->read(portion); }
    /// Reads something that a later batch needs. False if there is nothing to do now.
    [[nodiscard]] bool read_ahead() { return reader_->read_ahead(); }

    /// Returns true if all ranks take the batch that was read; `portion` is then updated with their
    /// position. Otherwise the epoch is_over(), or later batches must be read again after
    /// restart(). *Collective* at the first batch of a step if micro-batches are spread across
    /// ranks. Throws DataError [RT-D74].
    [[nodiscard]] bool commit(BatchRequest& portion, const AllReduceMax& agree);
    /// Continues from the last step that was taken. No thread may be reading.
    void restart();

    /// The positions of all ranks after the last whole step that was taken.
    [[nodiscard]] const std::vector<LanePosition>& places() const noexcept { return places_; }
    [[nodiscard]] bool is_over() const noexcept { return is_over_; }
    /// Valid at the end.
    [[nodiscard]] const LeftOut& left_out() const noexcept { return left_out_; }
    /// At the end of an epoch without a step: true if a micro-batch had no rows at all, not just
    /// too few.
    [[nodiscard]] bool found_none() const noexcept { return found_none_; }
    /// The error for an epoch that is_over() with too few rows for a single step on `ranks`.
    [[nodiscard]] DataError no_batch(std::int64_t ranks) const;

private:
    /// The agreed state of the lanes after all ranks have read a step.
    struct Agreed {
        std::int64_t least = 0;
        std::vector<LanePosition> after;
        std::vector<bool> had_ended;
    };
    [[nodiscard]] Agreed exchange(const LaneStep& step, const AllReduceMax& agree) const;
    /// Decides how to continue if a micro-batch has too few rows.
    void settle_short(const Agreed& agreed);
    /// Deals out the remaining lanes again; false if micro-batches then have the same ones.
    [[nodiscard]] bool deal();
    void end_epoch();

    Shape shape_;
    Lanes lanes_;
    std::vector<LanePosition> places_;
    std::int64_t taken_;                   ///< in whole steps
    std::vector<LanePosition> after_step_; ///< of the step being taken
    bool is_last_ = false;                 ///< the next step is the last
    bool is_over_ = false;
    LeftOut left_out_;
    std::int64_t found_ = 0;  ///< rows found when a micro-batch had too few
    bool found_all_ = false;  ///< there are no more
    bool found_none_ = false; ///< a micro-batch had none

    std::int64_t next_number_ = 0;
    std::int64_t next_pass_ = 0;
    std::int64_t next_taken_ = 0;
    std::optional<LaneReader> reader_;
};

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/stream/lane_steps_definitions.hpp>
#endif
