// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door lane_chunks.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/data/stream/lane_chunks.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace rtrain::data {

RTRAIN_DOOR Lanes lanes_of_places(std::shared_ptr<const UnsizedDataset> uncounted,
                                  std::int64_t lanes, std::int64_t rows, std::int64_t chunk,
                                  std::function<Batch(const StridedPlaces&)> read) {
    return {std::move(uncounted),
            [=, read = std::move(read)](std::int64_t lane, std::int64_t first_row) {
                const std::int64_t of_lane = rows_of_lane(rows, lanes, lane);
                return [=, row = first_row / chunk * chunk]() mutable -> std::optional<LaneRows> {
                    const std::int64_t begin = row;
                    if (begin >= of_lane) {
                        return std::nullopt;
                    }
                    row = std::min(of_lane, begin + chunk);
                    return LaneRows{read({begin * lanes + lane, lanes, row - begin}), begin, row};
                };
            }};
}

RTRAIN_DOOR Lanes lanes_of_generator(const std::shared_ptr<const UnsizedDataset>& uncounted,
                                     const GeneratorRequest& epoch) {
    const GeneratorBegin& begin = uncounted->generator();
    return {uncounted, [=](std::int64_t lane, std::int64_t first_row) {
                GeneratorRequest request = epoch; // a copy: several threads may call this
                request.lane = lane;
                request.first_row = first_row;
                return
                    [next = begin(request), row = first_row]() mutable -> std::optional<LaneRows> {
                        std::optional<Batch> rows = next();
                        if (!rows) {
                            return std::nullopt;
                        }
                        const std::int64_t first = row;
                        row += rows->size();
                        return LaneRows{*std::move(rows), first, row};
                    };
            }};
}

RTRAIN_DOOR void LaneChunks::add(std::int64_t lane, std::int64_t first_row) {
    const auto [at, is_new] =
        lanes_.try_emplace(lane, Lane{.number = lane, .first_row = first_row});
    to_read_.push_back(&at->second);
}

RTRAIN_DOOR void LaneChunks::begin_turn(std::int64_t number) {
    Lock lock(mutex_);
    while (turn_ != number) {
        if (!read_ahead(lock)) {
            has_changed_.wait(lock);
        }
    }
}

RTRAIN_DOOR void LaneChunks::end_turn() {
    const Lock lock(mutex_);
    ++turn_;
    has_changed_.notify_all();
}

RTRAIN_DOOR std::optional<LaneChunk> LaneChunks::next(std::int64_t number) {
    Lock lock(mutex_);
    Lane& lane = lanes_.at(number);
    while (lane.is_busy) {
        if (!read_ahead(lock)) {
            has_changed_.wait(lock);
        }
    }
    if (std::exchange(lane.is_ahead, false)) {
        --is_ahead_;
    } else {
        std::erase(to_read_, &lane);
        read(lane, lock);
    }
    has_changed_.notify_all(); // reading ahead may continue
    if (lane.error) {
        std::rethrow_exception(lane.error);
    }
    if (lane.chunk) {
        to_read_.push_back(&lane);
    }
    return std::exchange(lane.chunk, std::nullopt);
}

RTRAIN_DOOR bool LaneChunks::read_ahead() {
    Lock lock(mutex_);
    return read_ahead(lock);
}

RTRAIN_DOOR bool LaneChunks::read_ahead(Lock& lock) {
    if (to_read_.empty() || is_ahead_ >= ahead_) {
        return false;
    }
    Lane& lane = *to_read_.front();
    to_read_.pop_front();
    ++is_ahead_;
    read(lane, lock);
    lane.is_ahead = true;
    has_changed_.notify_all();
    return true;
}

RTRAIN_DOOR void LaneChunks::read(Lane& lane, Lock& lock) {
    lane.is_busy = true;
    lock.unlock();
    std::optional<LaneChunk> chunk;
    std::exception_ptr error;
    try {
        chunk = made_of_next(lane);
    } catch (...) {
        error = std::current_exception();
    }
    lock.lock();
    lane.is_busy = false;
    lane.chunk = std::move(chunk);
    lane.error = std::move(error);
}

RTRAIN_DOOR std::optional<LaneChunk> LaneChunks::made_of_next(Lane& lane) const {
    if (!lane.rows) {
        lane.rows = from_.open(lane.number, lane.first_row);
    }
    std::optional<LaneRows> rows = lane.rows();
    if (!rows) {
        return std::nullopt;
    }
    TransformedRows made =
        rows->batch.size() > 0 ? from_.uncounted->make(std::move(rows->batch)) : TransformedRows{};
    for (std::int64_t& row : made.of) {
        row += rows->begin;
    }
    return LaneChunk{std::make_shared<const Batch>(std::move(made.batch)), std::move(made.of),
                     rows->end};
}

} // namespace rtrain::data
