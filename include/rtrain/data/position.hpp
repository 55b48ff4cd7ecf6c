// SPDX-License-Identifier: Apache-2.0
/// @file
/// The place reached in a data set, and the way back to it in a run that goes on. Cost tier 0: std
/// only.
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

/// A pass over a data set that has ended in the body of a loop: see Loops.
struct FinishedPass {
    std::int64_t epoch;    ///< the pass's
    bool trains;           ///< else it evaluates
    std::int64_t body;     ///< which it began in
    std::int64_t ended_in; ///< the loop that began later, in whose body it ended; 0: none
};

/// The way of a run that goes on to the place where its checkpoint was made.
struct Return {
    std::int64_t loops_to_begin = 0;        ///< that were under way, and are not yet
    std::function<void()> arrive = nullptr; ///< before the first batch of the last of them

    /// Whether no loop is left to begin.
    [[nodiscard]] bool is_over() const noexcept { return loops_to_begin == 0; }
};

/// How far ranks have come in a lane of rows that are not counted.
struct LanePlace {
    std::int64_t used = 0;  ///< rows that were read for it and are used up
    std::int64_t given = 0; ///< rows made of the next one that are taken
    std::int64_t taken = 0; ///< rows, whatever they were made of
    bool has_ended = false; ///< whether nothing is left of it
    std::int64_t turn = 0;  ///< when lanes were dealt out; -1: it had ended
    friend bool operator==(const LanePlace&, const LanePlace&) = default;
};

/// How far ranks have come in a data set; a checkpoint holds it. Nothing in it depends on the
/// number of ranks.
struct Position {
    std::int64_t epoch = 0;    ///< the pass under way, or the next one
    std::int64_t samples = 0;  ///< rows of this pass that all ranks have taken, in whole steps
    bool iterating = false;    ///< a loop over the batches is under way
    bool within_step = false;  ///< ranks have taken some batches of the next step
    std::int64_t rows = 0;     ///< of the data set; 0: not known
    std::string order = {};    ///< what `samples` counts in, by order_name(); empty: not known
    std::uint64_t digest = 0;  ///< of the data set's blocks, by BlockIndex; 0: not known
    std::uint64_t content = 0; ///< as far as BlockIndex knows it; 0: not known
    std::vector<LanePlace> lanes = {}; ///< of a pass over rows that are not counted

    // Of the batch that the loop is at, which all this counts as taken.
    std::int64_t samples_before = 0;          ///< `samples` without it
    std::vector<LanePlace> lanes_before = {}; ///< `lanes` without it
    bool begins_step = true;                  ///< whether it is a step's first

    std::vector<FinishedPass> finished = {}; ///< of those whose body is not over, and others

    // On the way back.
    std::int64_t passes_to_skip = 0; ///< that were finished when the checkpoint was made
    bool is_around = false;          ///< the checkpoint was made in a loop inside this one
    bool was_under_way = false;      ///< when the checkpoint was made, and has not begun since
    std::shared_ptr<Return> way_back = nullptr; ///< to where a resumed run goes

    bool said_empty = false;    ///< a pass without a batch was told about
    bool said_left_out = false; ///< so was one that did not come to all rows
    bool said_repeated = false; ///< so was an evaluation that repeated rows
    std::int64_t left_out = 0;  ///< rows that the last whole pass did not come to

    /// Before a pass: whether the checkpoint was made behind it, so that there is nothing to do.
    [[nodiscard]] bool skips_pass() noexcept {
        if (!way_back || way_back->is_over() || passes_to_skip == 0) {
            return false;
        }
        --passes_to_skip;
        return true;
    }

    /// Before a pass through `now_rows` rows in the order `now_order`. Throws DataError [RT-D12,
    /// RT-D13, RT-D21] when the pass has begun with others.
    void begin_pass(std::int64_t now_rows, const std::string& now_order,
                    std::uint64_t now_digest = 0, std::uint64_t now_content = 0) {
        if (samples > 0 && rows != 0 && rows != now_rows) {
            throw DataError("RT-D12",
                            detail::concat("the checkpoint was made after ", samples,
                                           " rows of an epoch over ", rows,
                                           " rows, but the data set has ", now_rows,
                                           " now; give the run the same rows, or begin another "
                                           "epoch with set_epoch()"));
        }
        if (samples > 0 && !order.empty() && !now_order.empty() && order != now_order) {
            throw DataError(
                "RT-D13",
                detail::concat("the checkpoint was made after ", samples,
                               " rows of an epoch in the order \"", order,
                               "\", but this run reads in the order \"", now_order,
                               "\" and would repeat and miss rows; use the same, or begin "
                               "another epoch with set_epoch()"));
        }
        const auto is_other = [](std::uint64_t was, std::uint64_t now) {
            return was != 0 && now != 0 && was != now;
        };
        if (samples > 0 && (is_other(digest, now_digest) || is_other(content, now_content))) {
            throw DataError(
                "RT-D21",
                detail::concat("the checkpoint was made after ", samples,
                               " rows of an epoch, but the data set has changed since: it has as "
                               "many rows, ",
                               is_other(digest, now_digest) ? "in other blocks" : "but others",
                               "; give the run the same data, or begin another epoch "
                               "with set_epoch()"));
        }
        rows = now_rows;
        order = now_order;
        digest = now_digest;
        content = now_content;
        const bool was = std::exchange(was_under_way, false);
        if (was && way_back && !way_back->is_over() && --way_back->loops_to_begin == 0) {
            way_back->arrive();
        }
    }

    /// The loop comes to its next batch.
    void advance(std::int64_t taken, bool ends_step, std::vector<LanePlace> now = {}) noexcept {
        samples_before = samples;
        lanes_before = std::exchange(lanes, std::move(now));
        begins_step = !within_step;
        samples = taken;
        within_step = !ends_step;
    }

    /// The pass, over rows that are not counted, ends although `some_lanes` have more: these rows
    /// are not read. Says so once, if it `says` that at all.
    void leave_out(std::int64_t some_lanes, std::int64_t these_rows, bool says) {
        left_out = these_rows;
        if (!says || (some_lanes == 0 && samples > 0) || std::exchange(said_left_out, true)) {
            return;
        }
        if (some_lanes == 0) {
            console::warn("an epoch has no batch: no row is left");
            return;
        }
        const std::string of_rows = // which a generator does not know
            rows == 0 ? "" : detail::concat(these_rows, " of ", rows, " rows, in ");
        console::warn(
            "an epoch ended before all rows were read, because not every rank had a batch "
            "any more; what is left out: %s%lld %s",
            of_rows.c_str(), static_cast<long long>(some_lanes),
            some_lanes == 1 ? "lane" : "lanes");
    }

    /// A new epoch is next.
    void begin_epoch(std::int64_t number) noexcept {
        epoch = number;
        samples = 0;
        lanes.clear();
        iterating = false;
        within_step = false;
    }
    void finish_epoch() noexcept { begin_epoch(epoch + 1); } ///< goes to the beginning of the next

    /// The next pass is `number`. The rest of that very pass, which a checkpoint was made in, stays
    /// what is next: loops say the number of each of their passes.
    void set_epoch(std::int64_t number) noexcept {
        const bool is_there = samples > 0 && !iterating && epoch == number;
        if (!is_there) {
            begin_epoch(number);
        }
    }
};

/// Warns once of a loop that read rows twice and had no backward pass: it may be an evaluation that
/// does not say so.
inline void say_repeated(Position& position, std::int64_t repeated, std::int64_t rows) {
    if (repeated > 0 && !std::exchange(position.said_repeated, true)) {
        console::warn(
            "a loop read %lld of %lld rows twice, so that all ranks had equally many, and "
            "had no backward pass; if it evaluates, run it under torch::NoGradGuard, or "
            "set each_row_once",
            static_cast<long long>(repeated), static_cast<long long>(rows));
    }
}

/// Tells of an epoch that drop_last leaves without a batch: nothing is trained in it.
inline void say_empty_epoch(std::int64_t rows, std::int64_t rows_of_rank, std::int64_t ranks) {
    console::warn("an epoch has no batch: %lld rows fill no step of %lld rows on each of "
                  "%lld ranks, and drop_last leaves them out",
                  static_cast<long long>(rows), static_cast<long long>(rows_of_rank),
                  static_cast<long long>(ranks));
}

} // namespace rtrain::data
