// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lanes of rows whose number is not known: what is read for them, what functions make of it, and
/// batches of rows of several lanes.
#pragma once

#include <rtrain/data/batch.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/data/feed.hpp>
#include <rtrain/data/position.hpp>
#include <rtrain/data/steps.hpp>
#include <rtrain/data/uncounted.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Rows that follow each other in a lane.
struct LaneRows {
    Batch batch;
    std::int64_t begin = 0; ///< of the lane, from 0
    std::int64_t end = 0;
};
/// Gives the next rows of a lane; empty at its end.
using NextLaneRows = std::function<std::optional<LaneRows>()>;

/// Where lanes are read from, and what is made of it.
struct Lanes {
    std::shared_ptr<const Uncounted> uncounted;
    /// Reads a lane from a row on, or from one before it.
    std::function<NextLaneRows(std::int64_t lane, std::int64_t first_row)> open;
};

/// Lanes of an order in which row r of lane l has place r × lanes + l, of `rows` places. They are
/// read `chunk` rows at a time, and the same ones, wherever a pass begins.
[[nodiscard]] Lanes lanes_of_places(std::shared_ptr<const Uncounted> uncounted, std::int64_t lanes,
                                    std::int64_t rows, std::int64_t chunk,
                                    std::function<Batch(const StridedPlaces&)> read);
/// Lanes that a generator fills.
[[nodiscard]] Lanes lanes_of_generator(std::shared_ptr<const Uncounted> uncounted,
                                       const GeneratorRequest& epoch);

/// One lane, from a place on.
class Lane {
public:
    Lane(std::int64_t number, const LanePlace& place) : number_(number), place_(place) {}

    [[nodiscard]] std::int64_t number() const noexcept { return number_; }
    [[nodiscard]] const LanePlace& place() const noexcept { return place_; }

    /// Whether there is a row; reads on to the next one, or to the end.
    [[nodiscard]] bool has_row(const Lanes& from);
    /// Row `second` of `first`; has_row() has said that there is one.
    [[nodiscard]] std::pair<std::shared_ptr<const Batch>, std::int64_t> take();

private:
    /// Rows were read: what is made of them, without what was taken before.
    void make(const Uncounted& uncounted, LaneRows rows);

    std::int64_t number_;
    LanePlace place_;
    NextLaneRows next_;
    std::shared_ptr<const Batch> made_;
    std::vector<std::int64_t> of_; ///< the lane's row that each row of made_ was made of
    std::size_t row_ = 0;          ///< of made_, the next
    std::int64_t end_ = 0;         ///< of the rows that were read
};

/// The lanes of one micro-batch.
class LaneGroup {
public:
    void add(Lane lane) { lanes_.push_back(std::move(lane)); }
    [[nodiscard]] const std::vector<Lane>& lanes() const noexcept { return lanes_; }
    /// The next rows, fewer only when all lanes have ended.
    [[nodiscard]] Batch take(const Lanes& from, std::int64_t rows);
    /// Reads on in all lanes, to know which have ended.
    void find_ends(const Lanes& from);

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
    /// `groups` by pass; batches have `size` rows. With `is_last`, the first step is the last.
    LaneReader(Lanes lanes, std::vector<LaneGroup> groups, std::int64_t size, bool is_last);

    /// A batch, one pass after the other; none when a micro-batch of this step has too few rows.
    /// Says so in `portion`, and in that of the first pass what the rank knows.
    [[nodiscard]] Batch read(Portion& portion);

private:
    [[nodiscard]] std::shared_ptr<const LaneStep> read_step();

    Lanes lanes_;
    std::vector<LaneGroup> groups_;
    std::int64_t size_;
    bool is_last_;
    std::vector<Batch> batches_; ///< of the step, by pass
    bool is_short_ = false;      ///< the step
};

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/lanes_definitions.hpp>
#endif
