// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lanes with an unknown number of rows: batches of rows of several of them, in an order that does
/// not depend on the number of reading threads. They are read by lane_chunks.hpp.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/order/position.hpp>
#include <rtrain/data/stream/batch_sampler.hpp>
#include <rtrain/data/stream/lane_chunks.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::data {

/// One lane, from a position on.
class Lane {
public:
    Lane(std::int64_t number, const LanePosition& place) : number_(number), place_(place) {}

    [[nodiscard]] std::int64_t number() const noexcept { return number_; }
    [[nodiscard]] const LanePosition& place() const noexcept { return place_; }

    /// Reads ahead to the next row, or to the end; true if there is a row.
    [[nodiscard]] bool advance(LaneChunks& chunks);
    /// Row `second` of `first`; call it after advance() returned true.
    [[nodiscard]] std::pair<std::shared_ptr<const Batch>, std::int64_t> take();

private:
    std::int64_t number_;
    LanePosition place_;
    bool has_begun_ = false;
    LaneChunk chunk_;     ///< read last
    std::size_t row_ = 0; ///< its next one
};

/// The lanes of one micro-batch.
class LaneGroup {
public:
    void add(Lane lane) { lanes_.push_back(std::move(lane)); }
    [[nodiscard]] const std::vector<Lane>& lanes() const noexcept { return lanes_; }
    /// The next rows; fewer only if all lanes have ended.
    [[nodiscard]] Batch take(LaneChunks& chunks, std::int64_t rows);
    /// Reads ahead in all lanes, to find which have ended.
    void find_ends(LaneChunks& chunks);

private:
    std::vector<Lane> lanes_;
};

/// A rank's knowledge of its lanes after it has read a step.
struct LaneStep {
    struct Known {
        std::int64_t lane = 0;
        LanePosition after;     ///< after the step
        bool had_ended = false; ///< before it
    };
    std::int64_t least = 0; ///< rows that each of the rank's micro-batches has at least
    std::vector<Known> lanes;
};

/// Reads ahead on a rank, step by step, assuming that all ranks take everything.
class LaneReader {
public:
    /// `groups` by pass; batches have `size` rows. With `is_last`, the first step is the last. Up
    /// to `ahead` chunks of lanes are read before they are needed.
    LaneReader(Lanes lanes, std::vector<LaneGroup> groups, std::int64_t size, bool is_last,
               std::int64_t ahead);

    /// Reads the batches of consecutive passes; empty if a micro-batch of this step has too few
    /// rows. Sets that in `portion`; the portion of the first pass also gets the state of the
    /// lanes. Any thread may call it: one whose portion is not next reads ahead meanwhile.
    [[nodiscard]] Batch read(BatchRequest& portion);

    /// Reads something that a later portion needs. False if there is nothing to do now.
    [[nodiscard]] bool read_ahead() { return chunks_.read_ahead(); }

private:
    [[nodiscard]] std::shared_ptr<const LaneStep> read_step();

    LaneChunks chunks_;
    // Accessed only by the thread that holds the turn.
    std::vector<LaneGroup> groups_;
    std::int64_t size_;
    bool is_last_;
    std::vector<Batch> batches_; ///< of the step, by pass
    bool is_short_ = false;      ///< of the step
    std::exception_ptr error_;   ///< of an earlier read; later ones rethrow it
};

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/stream/lanes_definitions.hpp>
#endif
