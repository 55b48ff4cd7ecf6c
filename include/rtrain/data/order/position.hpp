// SPDX-License-Identifier: Apache-2.0
/// @file
/// The position reached in a data set, and how a resumed run returns to it. Cost tier 0: std only.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

/// A pass through a data set that has ended in the body of a loop: see Loops.
struct FinishedPass {
    std::int64_t epoch;    ///< the epoch of the pass
    bool trains;           ///< else it evaluates
    std::int64_t body;     ///< in which it began
    std::int64_t ended_in; ///< the loop that began later, in whose body it ended; 0: none
};

/// The path of a resumed run back to the position of its checkpoint.
struct ResumePath {
    std::int64_t loops_to_begin = 0;        ///< loops of the checkpoint that have not begun yet
    std::function<void()> arrive = nullptr; ///< called before the first batch of the last of them

    /// True if no loop is left to begin.
    [[nodiscard]] bool is_over() const noexcept { return loops_to_begin == 0; }
};

/// The position of all ranks in a lane of rows that are not counted.
struct LanePosition {
    std::int64_t used = 0;  ///< source rows read for it and used up
    std::int64_t given = 0; ///< rows taken of those made from the next source row
    std::int64_t taken = 0; ///< rows, whatever their source
    bool has_ended = false; ///< no rows are left
    std::int64_t turn = 0;  ///< in the dealing of lanes; -1: it had ended
    friend bool operator==(const LanePosition&, const LanePosition&) = default;
};

/// The position of all ranks in a data set, saved in checkpoints. Nothing in it depends on the
/// number of ranks.
struct Position {
    std::int64_t epoch = 0;    ///< the current pass, or the next one
    std::int64_t samples = 0;  ///< rows of this pass that all ranks have taken, in whole steps
    bool iterating = false;    ///< a loop over the batches is in progress
    bool within_step = false;  ///< ranks have taken some batches of the next step
    std::int64_t rows = 0;     ///< of the data set; 0: not known
    std::string order = {};    ///< of `samples`, from order_name(); empty: not known
    std::uint64_t digest = 0;  ///< of the data set's blocks, from BlockIndex; 0: not known
    std::uint64_t content = 0; ///< as far as BlockIndex can tell; 0: not known
    std::vector<LanePosition> lanes = {}; ///< of a pass through rows that are not counted

    // The state before the loop's current batch, which all of the above counts as taken.
    std::int64_t samples_before = 0;             ///< `samples` without it
    std::vector<LanePosition> lanes_before = {}; ///< `lanes` without it
    bool begins_step = true;                     ///< it is the first of a step
    std::int64_t passes = 0;                     ///< batches of this rank in its step; 0: as usual

    std::vector<FinishedPass> finished = {}; ///< those whose body has not ended, and others

    // While returning to the position of a checkpoint.
    std::int64_t passes_to_skip = 0; ///< finished when the checkpoint was made
    bool is_around = false;          ///< the checkpoint was made in a loop inside this one
    bool was_under_way = false;      ///< when the checkpoint was made, and not begun since
    std::shared_ptr<ResumePath> resume_path = nullptr; ///< of a resumed run

    bool said_empty = false;    ///< warned about a pass without a batch
    bool said_left_out = false; ///< warned about a pass that left out rows
    bool said_repeated = false; ///< warned about an evaluation that repeated rows
    std::int64_t left_out = 0;  ///< rows that the last whole pass did not reach

    /// Called before a pass; true if the checkpoint was made after it, so it is skipped.
    [[nodiscard]] bool consume_skip() noexcept {
        if (!resume_path || resume_path->is_over() || passes_to_skip == 0) {
            return false;
        }
        --passes_to_skip;
        return true;
    }

    /// Called before a pass through `now_rows` rows in the order `now_order`. Throws DataError
    /// [RT-D12, RT-D13, RT-D21] if the pass began with different ones.
    void begin_pass(std::int64_t now_rows, const std::string& now_order,
                    std::uint64_t now_digest = 0, std::uint64_t now_content = 0) {
        if (samples > 0 && rows != 0 && rows != now_rows) {
            throw DataError(
                "RT-D12",
                detail::concat(
                    "the checkpoint was made after ", samples, " rows of an epoch over ", rows,
                    " rows, but the data set has ", now_rows,
                    " now; give the run the same rows, or start a new epoch with set_epoch()"));
        }
        if (samples > 0 && !order.empty() && !now_order.empty() && order != now_order) {
            throw DataError("RT-D13",
                            detail::concat("the checkpoint was made after ", samples,
                                           " rows of an epoch in the order \"", order,
                                           "\", but this run reads in the order \"", now_order,
                                           "\" and would repeat and miss rows; use the same order, "
                                           "or start a new epoch with set_epoch()"));
        }
        const auto is_other = [](std::uint64_t was, std::uint64_t now) {
            return was != 0 && now != 0 && was != now;
        };
        if (samples > 0 && (is_other(digest, now_digest) || is_other(content, now_content))) {
            throw DataError(
                "RT-D21",
                detail::concat(
                    "the checkpoint was made after ", samples,
                    " rows of an epoch, but the data set has changed since: it has the same number "
                    "of rows, ",
                    is_other(digest, now_digest) ? "in different blocks" : "but different ones",
                    "; give the run the same data, or start a new epoch with set_epoch()"));
        }
        rows = now_rows;
        order = now_order;
        digest = now_digest;
        content = now_content;
        const bool was = std::exchange(was_under_way, false);
        if (was && resume_path && !resume_path->is_over() && --resume_path->loops_to_begin == 0) {
            resume_path->arrive();
        }
    }

    /// The loop moves to its next batch.
    void advance(std::int64_t taken, bool ends_step, std::vector<LanePosition> now = {}) noexcept {
        samples_before = samples;
        lanes_before = std::exchange(lanes, std::move(now));
        begins_step = !within_step;
        samples = taken;
        within_step = !ends_step;
    }

    /// Ends a pass through rows that are not counted although `some_lanes` have more; these rows
    /// are not read. Warns once, if `says` is true.
    void leave_out(std::int64_t some_lanes, std::int64_t these_rows, bool says) {
        left_out = these_rows;
        if (!says || (some_lanes == 0 && samples > 0) || std::exchange(said_left_out, true)) {
            return;
        }
        if (some_lanes == 0) {
            console::warn("an epoch has no batch: no rows are left");
            return;
        }
        const std::string of_rows = // not known for generators
            rows == 0 ? "" : detail::concat(these_rows, " of ", rows, " rows, in ");
        console::warn("an epoch ended before all rows were read, because some ranks had no batch "
                      "left; left out: %s%lld %s",
                      of_rows.c_str(), static_cast<long long>(some_lanes),
                      some_lanes == 1 ? "lane" : "lanes");
    }

    /// Moves to the start of an epoch.
    void begin_epoch(std::int64_t number) noexcept {
        epoch = number;
        samples = 0;
        lanes.clear();
        iterating = false;
        within_step = false;
    }
    void finish_epoch() noexcept { begin_epoch(epoch + 1); } ///< moves to the next epoch

    /// Sets the next pass. If `number` is the pass in which a checkpoint was made, the rest of that
    /// pass stays next: loops set the number before each of their passes.
    void set_epoch(std::int64_t number) noexcept {
        const bool is_there = samples > 0 && !iterating && epoch == number;
        if (!is_there) {
            begin_epoch(number);
        }
    }
};

/// Warns once about a loop that read rows twice and had no backward pass: it may be an unmarked
/// evaluation.
inline void say_repeated(Position& position, std::int64_t repeated, std::int64_t rows) {
    if (repeated > 0 && !std::exchange(position.said_repeated, true)) {
        console::warn(
            "a loop read %lld of %lld rows twice to give all ranks equally many, and had no "
            "backward pass; if it evaluates, run it under torch::NoGradGuard, or set each_row_once",
            static_cast<long long>(repeated), static_cast<long long>(rows));
    }
}

/// Warns about an epoch that has no batch because of drop_last: nothing is trained in it.
inline void say_empty_epoch(std::int64_t rows, std::int64_t rows_of_rank, std::int64_t ranks) {
    console::warn("an epoch has no batch: %lld rows do not fill a step of %lld rows on each of "
                  "%lld ranks, and drop_last leaves them out",
                  static_cast<long long>(rows), static_cast<long long>(rows_of_rank),
                  static_cast<long long>(ranks));
}

} // namespace rtrain::data
