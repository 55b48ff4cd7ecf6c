// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door lanes.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/data/batch/gather.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/stream/lanes.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain::data {

RTRAIN_DOOR bool Lane::advance(LaneChunks& chunks) {
    while (row_ == chunk_.of.size()) {
        if (place_.has_ended) {
            return false;
        }
        if (std::exchange(has_begun_, true)) { // the chunk is used up
            place_.used = std::max(place_.used, chunk_.end);
            place_.given = 0;
        }
        row_ = 0;
        chunk_ = {.end = chunk_.end};
        if (std::optional<LaneChunk> next = chunks.next(number_)) {
            chunk_ = *std::move(next);
            const auto [first, last] =
                std::equal_range(chunk_.of.begin(), chunk_.of.end(), place_.used);
            row_ = static_cast<std::size_t>(first - chunk_.of.begin() +
                                            std::min<std::int64_t>(place_.given, last - first));
        } else {
            place_.has_ended = true;
        }
    }
    return true;
}

RTRAIN_DOOR std::pair<std::shared_ptr<const Batch>, std::int64_t> Lane::take() {
    const std::int64_t of = chunk_.of[row_];
    const auto row = static_cast<std::int64_t>(row_++);
    place_.given = (of == place_.used ? place_.given : 0) + 1;
    place_.used = of;
    if (row_ == chunk_.of.size() || chunk_.of[row_] != of) {
        place_.used = of + 1;
        place_.given = 0;
    }
    ++place_.taken;
    return {chunk_.batch, row};
}

RTRAIN_DOOR Batch LaneGroup::take(LaneChunks& chunks, std::int64_t rows) {
    std::vector<std::shared_ptr<const Batch>> parts;
    std::map<const Batch*, std::int64_t> number_of;
    std::vector<PartRow> picked;
    while (static_cast<std::int64_t>(picked.size()) < rows) {
        Lane* next = nullptr;
        for (Lane& lane : lanes_) {
            if (!lane.place().has_ended && (!next || lane.place().taken < next->place().taken)) {
                next = &lane;
            }
        }
        if (!next) {
            break;
        }
        if (next->advance(chunks)) {
            auto [part, row] = next->take();
            const auto [known, is_new] =
                number_of.emplace(part.get(), static_cast<std::int64_t>(parts.size()));
            if (is_new) {
                parts.push_back(std::move(part));
            }
            picked.push_back({known->second, row});
        }
    }
    return gather_rows(
        at::arange(static_cast<std::int64_t>(picked.size()), at::kLong),
        [&](std::int64_t place) { return picked[static_cast<std::size_t>(place)]; },
        [&](std::int64_t part, const at::Tensor& of_part) {
            return select_rows(*parts[static_cast<std::size_t>(part)], of_part);
        });
}

RTRAIN_DOOR void LaneGroup::find_ends(LaneChunks& chunks) {
    for (Lane& lane : lanes_) {
        (void)lane.advance(chunks);
    }
}

RTRAIN_DOOR LaneReader::LaneReader(Lanes lanes, std::vector<LaneGroup> groups, std::int64_t size,
                                   bool is_last, std::int64_t ahead)
    : chunks_(std::move(lanes), ahead), groups_(std::move(groups)), size_(size), is_last_(is_last) {
    for (const LaneGroup& group : groups_) {
        for (const Lane& lane : group.lanes()) {
            chunks_.add(lane.number(), lane.place().used);
        }
    }
}

RTRAIN_DOOR Batch LaneReader::read(BatchRequest& portion) {
    struct Turn {
        Turn(LaneChunks& of, std::int64_t number) : chunks(of) { chunks.begin_turn(number); }
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;
        ~Turn() { chunks.end_turn(); }
        LaneChunks& chunks;
    };
    const Turn turn(chunks_, portion.number);
    if (error_) {
        std::rethrow_exception(error_);
    }
    if (portion.pass == 0) {
        try {
            portion.step = read_step();
        } catch (...) {
            error_ = std::current_exception();
            throw;
        }
        is_short_ = portion.step->least < size_;
    }
    portion.is_short = is_short_;
    return is_short_ ? Batch() : std::move(batches_[static_cast<std::size_t>(portion.pass)]);
}

RTRAIN_DOOR std::shared_ptr<const LaneStep> LaneReader::read_step() {
    auto step = std::make_shared<LaneStep>();
    step->least = size_;
    batches_.clear();
    for (LaneGroup& group : groups_) {
        std::vector<std::int64_t> taken; // so far
        for (const Lane& lane : group.lanes()) {
            taken.push_back(lane.place().taken);
        }
        batches_.push_back(group.take(chunks_, size_));
        if (is_last_) {
            group.find_ends(chunks_);
        }
        step->least = std::min(step->least, batches_.back().size());
        for (std::size_t i = 0; i < taken.size(); ++i) {
            const LanePosition& now = group.lanes()[i].place();
            step->lanes.push_back({.lane = group.lanes()[i].number(),
                                   .after = now,
                                   .had_ended = now.has_ended && now.taken == taken[i]});
        }
    }
    return step;
}

} // namespace rtrain::data
