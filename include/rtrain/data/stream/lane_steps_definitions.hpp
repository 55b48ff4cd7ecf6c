// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door lane_steps.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/stream/lane_steps.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace rtrain::data {

RTRAIN_DOOR LaneSteps::LaneSteps(const Shape& shape, Lanes lanes, std::vector<LanePosition> places,
                                 std::int64_t taken)
    : shape_(shape), lanes_(std::move(lanes)), places_(std::move(places)), taken_(taken) {
    for (auto lane = std::ssize(places_); lane < shape.lanes; ++lane) {
        places_.push_back({.turn = lane});
    }
    is_over_ = std::ranges::all_of(places_, &LanePosition::has_ended);
    restart();
}

RTRAIN_DOOR void LaneSteps::restart() {
    std::vector<LaneGroup> groups(static_cast<std::size_t>(shape_.passes));
    for (std::int64_t lane = 0; lane < shape_.lanes; ++lane) {
        const LanePosition& place = places_[static_cast<std::size_t>(lane)];
        const std::int64_t pass = place.turn % shape_.micro_batches - shape_.first;
        if (place.turn >= 0 && pass >= 0 && pass < shape_.passes) {
            groups[static_cast<std::size_t>(pass)].add(Lane(lane, place));
        }
    }
    reader_.emplace(lanes_, std::move(groups), shape_.size, is_last_, shape_.ahead);
    next_number_ = 0;
    next_pass_ = 0;
    next_taken_ = taken_;
}

RTRAIN_DOOR BatchRequest LaneSteps::next() {
    BatchRequest portion;
    portion.place = next_taken_ + shape_.first + next_pass_;
    portion.number = next_number_++;
    portion.pass = next_pass_;
    next_pass_ = (next_pass_ + 1) % shape_.passes;
    portion.ends_step = next_pass_ == 0;
    next_taken_ += portion.ends_step ? shape_.micro_batches * shape_.size : 0;
    return portion;
}

RTRAIN_DOOR bool LaneSteps::commit(BatchRequest& portion, const AllReduceMax& agree) {
    if (portion.pass == 0) {
        if (is_over_) {
            return false;
        }
        Agreed agreed = exchange(*portion.step, agree);
        if (agreed.least < shape_.size) {
            settle_short(agreed);
            return false;
        }
        after_step_ = std::move(agreed.after);
    }
    if (portion.ends_step) {
        places_ = std::move(after_step_);
        taken_ += shape_.micro_batches * shape_.size;
        if (is_last_) {
            end_epoch();
        }
    }
    portion.taken = taken_;
    return true;
}

RTRAIN_DOOR LaneSteps::Agreed LaneSteps::exchange(const LaneStep& step,
                                                  const AllReduceMax& agree) const {
    // Each lane has one owner; all other ranks send 0, the least number.
    enum Of : std::int64_t { used, given, taken, has_ended, had_ended, numbers };
    at::Tensor known = at::zeros({1 + numbers * shape_.lanes}, at::kLong);
    auto* const number = known.mutable_data_ptr<std::int64_t>();
    number[0] = -step.least;
    for (const auto& [lane, after, before] : step.lanes) {
        auto* const of = number + 1 + numbers * lane;
        of[used] = after.used;
        of[given] = after.given;
        of[taken] = after.taken;
        of[has_ended] = after.has_ended ? 1 : 0;
        of[had_ended] = before ? 1 : 0;
    }
    if (shape_.micro_batches > shape_.passes) {
        if (!agree) {
            throw DataError(
                "RT-D74",
                "ranks that share rows which are not counted must agree on each step, but these "
                "batches have no function for that; get them from worker.dataset_shard()");
        }
        agree(known);
    }
    const auto* const all = known.const_data_ptr<std::int64_t>();
    Agreed agreed{.least = -all[0], .after = places_, .had_ended = {}};
    for (std::int64_t lane = 0; lane < shape_.lanes; ++lane) {
        const auto* const of = all + 1 + numbers * lane;
        LanePosition& place = agreed.after[static_cast<std::size_t>(lane)];
        agreed.had_ended.push_back(place.has_ended || of[had_ended] != 0);
        if (place.turn >= 0) {
            place = {.used = of[used],
                     .given = of[given],
                     .taken = of[taken],
                     .has_ended = of[has_ended] != 0,
                     .turn = place.turn};
        }
    }
    return agreed;
}

RTRAIN_DOOR DataError LaneSteps::no_batch(std::int64_t ranks) const {
    return {"RT-D106",
            detail::concat(
                "an epoch has no batch: ", found_all_ ? "" : "at least ", found_,
                found_ == 1 ? " row is" : " rows are", " left for ", shape_.micro_batches,
                " micro-batches of ", ranks, " ranks, each of which needs one",
                found_all_ ? "" : ", in too few lanes",
                shape_.drop_last ? "; keep more rows, or start fewer ranks"
                                 : "; keep more rows, start fewer ranks, or make the data set "
                                   ".counted(), which repeats rows. An evaluation under "
                                   "torch::NoGradGuard reads any number of them")};
}

RTRAIN_DOOR void LaneSteps::settle_short(const Agreed& agreed) {
    found_none_ = agreed.least == 0;
    found_ = 0;
    for (const LanePosition& place : agreed.after) {
        found_ += place.taken;
    }
    found_all_ = std::ranges::all_of(agreed.after, &LanePosition::has_ended);
    for (std::size_t lane = 0; lane < places_.size(); ++lane) {
        places_[lane].has_ended = agreed.had_ended[lane];
    }
    if (deal()) {
        return;
    }
    if (shape_.drop_last || agreed.least == 0) {
        end_epoch();
    } else {
        shape_.size = agreed.least;
        is_last_ = true;
    }
}

RTRAIN_DOOR bool LaneSteps::deal() {
    std::vector<LanePosition*> left;
    for (LanePosition& place : places_) {
        if (!place.has_ended) {
            left.push_back(&place);
        }
    }
    if (shape_.micro_batches == 1 || std::ssize(left) < shape_.micro_batches) {
        return false;
    }
    std::ranges::stable_sort(left, {}, &LanePosition::taken);
    const std::vector<LanePosition> former = places_;
    for (LanePosition& place : places_) {
        place.turn = -1;
    }
    for (std::size_t turn = 0; turn < left.size(); ++turn) {
        left[turn]->turn = static_cast<std::int64_t>(turn);
    }
    return places_ != former;
}

RTRAIN_DOOR void LaneSteps::end_epoch() {
    for (std::int64_t lane = 0; lane < shape_.lanes; ++lane) {
        LanePosition& place = places_[static_cast<std::size_t>(lane)];
        if (!place.has_ended) {
            const std::int64_t rows = rows_of_lane(shape_.rows, shape_.lanes, lane);
            left_out_.lanes += 1;
            left_out_.rows += std::max<std::int64_t>(rows - place.used, 0);
            place.has_ended = true;
        }
    }
    is_over_ = true;
}

} // namespace rtrain::data
