// SPDX-License-Identifier: Apache-2.0
/// @file
/// How all ranks together go through lanes of rows that are not counted, in equally many batches of
/// equal size: see decisions/0022.
///
/// Each lane belongs to one micro-batch of the step, the lane with turn t to number
/// t % micro_batches, and so to one rank. A micro-batch takes its rows from its lanes in turns:
/// each from the lane of which the least were taken, the first of several, and passes over lanes
/// that have ended. So as long as no lane ends and micro-batches divide lanes, row p of the epoch
/// is of lane p % lanes; and all batches depend on the number of micro-batches, not on that of
/// ranks.
///
/// In each step ranks tell each other whether they have it, and how far their lanes are. When a
/// micro-batch has too few rows, because its lanes have ended, those that have not are dealt out
/// anew, those first of which the least were taken. When that helps no more, the last step has as
/// many rows in each micro-batch as there are in the one that has least, and the rows behind it
/// are left out.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch.hpp>
#include <rtrain/data/feed.hpp>
#include <rtrain/data/greatest_of_ranks.hpp>
#include <rtrain/data/lanes.hpp>
#include <rtrain/data/position.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace rtrain::data {

/// What of an epoch was not come to.
struct LeftOut {
    std::int64_t lanes = 0; ///< that had more rows
    std::int64_t rows = 0;  ///< that were to be read for them; 0 for generators
};

/// next() and settle() are for the thread of the loop; read() and read_ahead() are for any that
/// read ahead of it, as if every step were settled.
class LaneSteps {
public:
    struct Shape {
        std::int64_t lanes = 1;
        std::int64_t rows = 0;          ///< to be read for all of them; 0: not known
        std::int64_t size = 1;          ///< rows of a batch
        std::int64_t micro_batches = 1; ///< of all ranks in a step
        std::int64_t first = 0;         ///< of this rank
        std::int64_t passes = 1;        ///< micro-batches of this rank
        bool drop_last = false;
        std::int64_t ahead = 0; ///< chunks of lanes that are read before they are needed
    };

    /// Goes on at `places`, where all ranks have taken `taken` rows; none: at the beginning.
    LaneSteps(const Shape& shape, Lanes lanes, std::vector<LanePlace> places, std::int64_t taken);

    /// The next batch of this rank; there is always one, until settle() says that there is not.
    [[nodiscard]] Portion next();
    /// Its rows. Without any when the step cannot be taken; settle() says then what to do.
    [[nodiscard]] Batch read(Portion& portion) { return reader_->read(portion); }
    /// Something that a later batch will need. False when there is nothing to do now.
    [[nodiscard]] bool read_ahead() { return reader_->read_ahead(); }

    /// Whether ranks take the batch that was read. `portion` then says how far they are. If not,
    /// the epoch is_over(), or what follows has to be read again, behind restart(). *Collective* at
    /// the first batch of a step, if other ranks have other micro-batches. Throws DataError
    /// [RT-D74].
    [[nodiscard]] bool settle(Portion& portion, const GreatestOfRanks& agree);
    /// Begins again behind the last step that was taken. Nothing may be reading.
    void restart();

    /// How far all ranks are, behind the last whole step that was taken.
    [[nodiscard]] const std::vector<LanePlace>& places() const noexcept { return places_; }
    [[nodiscard]] bool is_over() const noexcept { return is_over_; }
    /// At the end.
    [[nodiscard]] const LeftOut& left_out() const noexcept { return left_out_; }
    /// At the end of an epoch without a step: whether a micro-batch had no row, not only too few.
    [[nodiscard]] bool found_none() const noexcept { return found_none_; }
    /// The error that the epoch, which is_over(), had too few rows for a single step on `ranks`.
    [[nodiscard]] DataError no_batch(std::int64_t ranks) const;

private:
    /// What ranks together know of lanes when they have read a step.
    struct Agreed {
        std::int64_t least = 0;
        std::vector<LanePlace> after;
        std::vector<bool> had_ended;
    };
    [[nodiscard]] Agreed exchange(const LaneStep& step, const GreatestOfRanks& agree) const;
    /// Says how to go on when a micro-batch has too few rows.
    void settle_short(const Agreed& agreed);
    /// Deals out the lanes that have not ended; false when micro-batches then have the same.
    [[nodiscard]] bool deal();
    void end_epoch();

    Shape shape_;
    Lanes lanes_;
    std::vector<LanePlace> places_;
    std::int64_t taken_;                ///< in whole steps
    std::vector<LanePlace> after_step_; ///< that is being taken
    bool is_last_ = false;              ///< the next step
    bool is_over_ = false;
    LeftOut left_out_;
    std::int64_t found_ = 0;  ///< rows, when a micro-batch had too few
    bool found_all_ = false;  ///< there are no others
    bool found_none_ = false; ///< for one of them

    std::int64_t next_number_ = 0;
    std::int64_t next_pass_ = 0;
    std::int64_t next_taken_ = 0;
    std::optional<LaneReader> reader_;
};

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/lane_steps_definitions.hpp>
#endif
