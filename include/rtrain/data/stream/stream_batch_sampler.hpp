// SPDX-License-Identifier: Apache-2.0
/// @file
/// The batches of a rank whose policy reads blocks in lanes.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/dataset/unsized.hpp>
#include <rtrain/data/order/any_policy.hpp>
#include <rtrain/data/order/permutation.hpp>
#include <rtrain/data/order/steps.hpp>
#include <rtrain/data/order/stream_order.hpp>
#include <rtrain/data/stream/batch_sampler.hpp>
#include <rtrain/data/stream/index_batch_sampler.hpp>
#include <rtrain/data/stream/lane_steps.hpp>
#include <rtrain/data/stream/lanes.hpp>
#include <rtrain/data/stream/stream_reader.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

/// The lanes and windows in which a policy with this many `lanes` streams a course. Without
/// blocks it has no windows, and lanes only for rows that are not counted. Throws DataError
/// [RT-D20, RT-D22].
[[nodiscard]] inline StreamShape stream_shape(std::int64_t lanes, const EpochPlan& course) {
    // Uncounted lanes belong to one micro-batch each.
    const std::int64_t readers = course.sharing * (course.uncounted ? course.passes : 1);
    return course.blocks ? stream_shape(*course.blocks, lanes, readers, course.memory_bytes)
                         : StreamShape{.lanes = used_lanes(lanes, readers), .window = 0};
}

/// The part of an order's name that order_name() lacks: its other inputs.
[[nodiscard]] inline std::string lanes_name(std::int64_t lanes, const EpochPlan& course) {
    if (!course.blocks && !course.uncounted) {
        return "";
    }
    const StreamShape shape = stream_shape(lanes, course);
    std::string name = ", " + std::to_string(shape.lanes) + " lanes";
    if (course.blocks && course.epoch.shuffle) {
        name += ", windows of " + std::to_string(shape.window) + " rows";
    }
    return name + (course.uncounted ? ", not counted" : "");
}

/// Reads from `lanes`. Over blocks, every step of all ranks is consecutive in a StreamOrder, and
/// each micro-batch has positions of only its own lanes. Over rows by number, it acts as
/// OrderBatchSampler. Over rows that are not counted, LaneSteps reads the lanes of their input; an
/// evaluation reads these from the beginning. Nothing is read before the first batch.
class StreamBatchSampler final : public BatchSampler {
public:
    StreamBatchSampler(AnyPolicy policy, EpochPlan course, std::int64_t taken)
        : policy_(std::move(policy)), course_(std::move(course)) {
        if (course_.blocks || course_.uncounted) {
            shape_ = stream_shape(*policy_.lanes(), course_);
        }
        if (!course_.uncounted || course_.uncounted->input()) { // throws RT-D7
            rows_.emplace(policy_, course_, taken);
        }
        if (course_.uncounted && course_.epoch.each_once) {
            lanes_.emplace(LaneSteps::Shape{.lanes = shape_.lanes,
                                            .rows = course_.epoch.rows,
                                            .size = course_.size,
                                            .drop_last = course_.epoch.drop_last,
                                            .ahead = course_.threads},
                           open_lanes(), own_lanes(), 0);
        } else if (course_.uncounted) {
            lanes_.emplace(LaneSteps::Shape{.lanes = shape_.lanes,
                                            .rows = course_.epoch.rows,
                                            .size = course_.size,
                                            .micro_batches = course_.sharing * course_.passes,
                                            .first = course_.place_among_sharing() * course_.passes,
                                            .passes = course_.passes,
                                            .drop_last = course_.epoch.drop_last,
                                            .ahead = course_.threads},
                           open_lanes(), course_.lanes, taken);
        }
    }

    void begin_reading() override {
        if (course_.blocks) {
            (void)reader();
        }
    }

    [[nodiscard]] std::optional<BatchRequest> next() override {
        if (lanes_) {
            return lanes_->next();
        }
        if (!course_.blocks) {
            return rows_->next();
        }
        return rows_->next_of([&](const Steps& steps, std::int64_t taken,
                                  std::int64_t number) -> std::optional<BatchRequest> {
            const StridedPlaces places = steps.strided_micro_batch(taken, number, shape_.lanes);
            if (places.count == 0) {
                return std::nullopt;
            }
            const bool comes_back = course_.passes > 1 && shape_.lanes % steps.micro_batches != 0;
            return BatchRequest{
                .place = places.first,
                .weight = steps.weight(taken, number, shape_.lanes),
                .plan = reader().plan(places, comes_back ? std::optional(taken) : std::nullopt)};
        });
    }

    [[nodiscard]] Batch read(const Dataset& dataset, BatchRequest& portion) override {
        if (lanes_) {
            return lanes_->read(portion);
        }
        if (!course_.blocks) {
            return rows_->read(dataset, portion);
        }
        const auto plan = std::exchange(portion.plan, nullptr);
        return reader().rows(*plan);
    }

    [[nodiscard]] bool read_ahead() override {
        return (lanes_ && lanes_->read_ahead()) || (reader_ && reader_->read_ahead());
    }

    [[nodiscard]] LaneSteps* lanes() noexcept override { return lanes_ ? &*lanes_ : nullptr; }

    [[nodiscard]] std::vector<LanePosition> places() const override {
        return lanes_ && !course_.epoch.each_once ? lanes_->places() : std::vector<LanePosition>{};
    }

    [[nodiscard]] std::int64_t batches() const override {
        if (lanes_) {
            throw course_.uncounted->unknown_size();
        }
        return rows_->batches();
    }

private:
    /// The lanes of an evaluation, in which a rank reads its lanes to their ends by itself; those
    /// of other ranks count as ended.
    [[nodiscard]] std::vector<LanePosition> own_lanes() const {
        std::vector<LanePosition> places;
        std::int64_t turn = 0;
        for (std::int64_t lane = 0; lane < shape_.lanes; ++lane) {
            const bool is_own = lane % course_.sharing == course_.place_among_sharing();
            places.push_back({.has_ended = !is_own, .turn = is_own ? turn++ : -1});
        }
        return places;
    }

    [[nodiscard]] StreamReader& reader() {
        if (!reader_) {
            const EpochRequest& epoch = course_.epoch;
            reader_.emplace(course_.blocks,
                            StreamOrder(course_.blocks->ends(), shape_, epoch.shuffle,
                                        hash_of(epoch.seed, epoch.epoch)),
                            course_.memory_bytes, course_.memory);
        }
        return *reader_;
    }

    [[nodiscard]] Lanes open_lanes() {
        const EpochRequest& epoch = course_.epoch;
        const Dataset* const input = course_.uncounted->input();
        if (!input) {
            return lanes_of_generator(
                course_.uncounted,
                {.seed = epoch.seed, .epoch = epoch.epoch, .lanes = shape_.lanes});
        }
        const std::int64_t chunk = UnsizedDataset::chunk_rows(course_.blocks.get());
        if (course_.blocks) {
            return lanes_of_places(course_.uncounted, shape_.lanes, epoch.rows,
                                   std::min(chunk, shape_.window),
                                   [this](const StridedPlaces& places) {
                                       return reader().rows(*reader().plan(places));
                                   });
        }
        return lanes_of_places(course_.uncounted, shape_.lanes, epoch.rows, chunk,
                               [this, input](const StridedPlaces& places) {
                                   std::vector<at::Tensor> rows;
                                   for (std::int64_t i = 0; i < places.count; ++i) {
                                       const std::int64_t place = places.first + i * places.stride;
                                       rows.push_back(
                                           policy_.rows_at(course_.epoch, place, place + 1));
                                   }
                                   return input->rows(at::cat(rows));
                               });
    }

    AnyPolicy policy_;
    EpochPlan course_;
    StreamShape shape_;
    std::optional<OrderBatchSampler> rows_;
    std::optional<StreamReader> reader_;
    std::optional<LaneSteps> lanes_;
};

} // namespace rtrain::data
