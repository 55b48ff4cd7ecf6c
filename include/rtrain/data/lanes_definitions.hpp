// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door lanes.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/data/gather.hpp>
#include <rtrain/data/lanes.hpp>
#include <rtrain/data/rows.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain::data {

RTRAIN_DOOR Lanes lanes_of_places(std::shared_ptr<const Uncounted> uncounted, std::int64_t lanes,
                                  std::int64_t rows, std::int64_t chunk,
                                  std::function<Batch(const StridedPlaces&)> read) {
    return {std::move(uncounted), [=](std::int64_t lane, std::int64_t first_row) {
                const std::int64_t of_lane = rows / lanes + (lane < rows % lanes ? 1 : 0);
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

RTRAIN_DOOR Lanes lanes_of_generator(std::shared_ptr<const Uncounted> uncounted,
                                     const GeneratorRequest& epoch) {
    const GeneratorBegin& begin = uncounted->generator();
    return {uncounted, [=, request = epoch](std::int64_t lane, std::int64_t first_row) mutable {
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

RTRAIN_DOOR bool Lane::has_row(const Lanes& from) {
    while (row_ == of_.size()) {
        if (place_.has_ended) {
            return false;
        }
        if (!next_) {
            next_ = from.open(number_, place_.used);
        } else { // nothing is left of what was read
            place_.used = std::max(place_.used, end_);
            place_.given = 0;
        }
        made_ = nullptr;
        if (std::optional<LaneRows> rows = next_()) {
            make(*from.uncounted, *std::move(rows));
        } else {
            next_ = nullptr;
            place_.has_ended = true;
        }
    }
    return true;
}

RTRAIN_DOOR void Lane::make(const Uncounted& uncounted, LaneRows rows) {
    end_ = rows.end;
    MadeRows made = rows.batch.size() > 0 ? uncounted.make(std::move(rows.batch)) : MadeRows{};
    made_ = std::make_shared<const Batch>(std::move(made.batch));
    of_ = std::move(made.of);
    for (std::int64_t& row : of_) {
        row += rows.begin;
    }
    const auto [first, last] = std::ranges::equal_range(of_, place_.used);
    row_ = static_cast<std::size_t>(first - of_.begin() +
                                    std::min<std::int64_t>(place_.given, last - first));
}

RTRAIN_DOOR std::pair<std::shared_ptr<const Batch>, std::int64_t> Lane::take() {
    const std::int64_t of = of_[row_];
    const auto row = static_cast<std::int64_t>(row_++);
    place_.given = (of == place_.used ? place_.given : 0) + 1;
    place_.used = of;
    if (row_ == of_.size() || of_[row_] != of) {
        place_.used = of + 1;
        place_.given = 0;
    }
    ++place_.taken;
    return {made_, row};
}

RTRAIN_DOOR Batch LaneGroup::take(const Lanes& from, std::int64_t rows) {
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
        if (next->has_row(from)) {
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

RTRAIN_DOOR void LaneGroup::find_ends(const Lanes& from) {
    for (Lane& lane : lanes_) {
        (void)lane.has_row(from);
    }
}

RTRAIN_DOOR LaneReader::LaneReader(Lanes lanes, std::vector<LaneGroup> groups, std::int64_t size,
                                   bool is_last)
    : lanes_(std::move(lanes)), groups_(std::move(groups)), size_(size), is_last_(is_last) {}

RTRAIN_DOOR Batch LaneReader::read(Portion& portion) {
    if (portion.pass == 0) {
        portion.step = read_step();
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
        std::vector<std::int64_t> taken; // before
        for (const Lane& lane : group.lanes()) {
            taken.push_back(lane.place().taken);
        }
        batches_.push_back(group.take(lanes_, size_));
        if (is_last_) {
            group.find_ends(lanes_);
        }
        step->least = std::min(step->least, batches_.back().size());
        for (std::size_t i = 0; i < taken.size(); ++i) {
            const LanePlace& now = group.lanes()[i].place();
            step->lanes.push_back({.lane = group.lanes()[i].number(),
                                   .after = now,
                                   .had_ended = now.has_ended && now.taken == taken[i]});
        }
    }
    return step;
}

} // namespace rtrain::data
