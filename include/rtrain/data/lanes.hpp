// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lanes of rows whose number is not known: batches of rows of several of them, in an order that
/// does not depend on how many threads read. lane_chunks.hpp has what reads.
#pragma once

#include <rtrain/data/batch.hpp>
#include <rtrain/data/feed.hpp>
#include <rtrain/data/lane_chunks.hpp>
#include <rtrain/data/position.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::data {

/// One lane, from a place on.
class Lane {
public:
    Lane(std::int64_t number, const LanePlace& place) : number_(number), place_(place) {}

    [[nodiscard]] std::int64_t number() const noexcept { return number_; }
    [[nodiscard]] const LanePlace& place() const noexcept { return place_; }

    /// Whether there is a row; reads on to the next one, or to the end.
    [[nodiscard]] bool has_row(LaneChunks& chunks);
    /// Row `second` of `first`; has_row() has said that there is one.
    [[nodiscard]] std::pair<std::shared_ptr<const Batch>, std::int64_t> take();

private:
    std::int64_t number_;
    LanePlace place_;
    bool has_begun_ = false;
    LaneChunk chunk_;     ///< the one that was read last
    std::size_t row_ = 0; ///< of it, the next
};

/// The lanes of one micro-batch.
class LaneGroup {
public:
    void add(Lane lane) { lanes_.push_back(std::move(lane)); }
    [[nodiscard]] const std::vector<Lane>& lanes() const noexcept { return lanes_; }
    /// The next rows, fewer only when all lanes have ended.
    [[nodiscard]] Batch take(LaneChunks& chunks, std::int64_t rows);
    /// Reads on in all lanes, to know which have ended.
    void find_ends(LaneChunks& chunks);

private:
    std::vector<Lane> lanes_;
};

/// What a rank knows of its lanes when it has read a step.
struct LaneStep {
    struct Known {
        std::int64_t lane = 0;
        LanePlace after;        ///< the step
        bool had_ended = false; ///< before it
    };
    std::int64_t least = 0; ///< rows that each of the rank's micro-batches has
    std::vector<Known> lanes;
};

/// What a rank reads ahead, step by step, as if all ranks took all of it.
class LaneReader {
public:
    /// `groups` by pass; batches have `size` rows. With `is_last`, the first step is the last. Up
    /// to `ahead` chunks of lanes are read before they are needed.
    LaneReader(Lanes lanes, std::vector<LaneGroup> groups, std::int64_t size, bool is_last,
               std::int64_t ahead);

    /// A batch, one pass after the other; none when a micro-batch of this step has too few rows.
    /// Says so in `portion`, and in that of the first pass what the rank knows. Called by any
    /// threads: one whose portion is not next reads ahead meanwhile.
    [[nodiscard]] Batch read(Portion& portion);

    /// Something that a later portion will need. False when there is nothing to do now.
    [[nodiscard]] bool read_ahead() { return chunks_.read_ahead(); }

private:
    [[nodiscard]] std::shared_ptr<const LaneStep> read_step();

    LaneChunks chunks_;
    // Of the thread whose turn it is.
    std::vector<LaneGroup> groups_;
    std::int64_t size_;
    bool is_last_;
    std::vector<Batch> batches_; ///< of the step, by pass
    bool is_short_ = false;      ///< the step
    std::exception_ptr error_;   ///< which ended a step before
};

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/lanes_definitions.hpp>
#endif
