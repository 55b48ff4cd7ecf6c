// SPDX-License-Identifier: Apache-2.0
/// @file
/// The batches of a rank by row number: from a policy's rows of this rank, or from positions in an
/// order of all ranks.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/order/any_policy.hpp>
#include <rtrain/data/order/sampler.hpp>
#include <rtrain/data/order/steps.hpp>
#include <rtrain/data/stream/batch_sampler.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace rtrain::data {

/// From `order()`: the rows of this rank, computed up front.
class IndexBatchSampler final : public BatchSampler {
public:
    IndexBatchSampler(const AnyPolicy& policy, const EpochPlan& course, std::int64_t taken)
        : course_(course), base_(policy.has_rest() ? taken : 0),
          order_(policy.order(course.epoch, taken)) {
        if (!policy.has_rest()) {
            row_ = std::min(order_.numel(), taken / course.sharing);
        }
        grows_ = policy.has_rest() && course.sharing == course.epoch.size &&
                 last_batch_grows(course.epoch, taken, course.size) &&
                 order_.numel() > (course.epoch.rows - taken) / course.epoch.size;
        end_ = grows_ ? order_.numel()
                      : std::min(order_.numel(),
                                 row_ + batches_in(order_.numel() - row_) * course.size);
        weighs_ =
            course.epoch.each_once && !course.epoch.drop_last && policy.streams_shuffled_blocks();
        taken_ = base_ + row_ * course.sharing;
    }

    [[nodiscard]] std::optional<BatchRequest> next() override {
        if (row_ >= end_) {
            return std::nullopt;
        }
        BatchRequest portion;
        portion.place = base_ + row_ * course_.sharing + course_.place_among_sharing();
        if (pass_ == 0) {
            passes_ = std::min(course_.passes, batches_in(end_ - row_));
        }
        portion.passes = passes_;
        const std::int64_t begin = row_;
        row_ = std::min(end_, row_ + course_.size);
        row_ += grows_ && row_ + 1 == end_ ? 1 : 0;
        portion.rows = order_.slice(0, begin, row_);
        if (weighs_ && row_ == end_) {
            const std::int64_t left = course_.epoch.rows - base_ - begin * course_.sharing;
            portion.weight =
                static_cast<double>((row_ - begin) * course_.sharing) / static_cast<double>(left);
        }
        pass_ = (pass_ + 1) % course_.passes;
        portion.ends_step = pass_ == 0 || row_ == end_;
        if (portion.ends_step) {
            taken_ = base_ + row_ * course_.sharing;
            taken_ = course_.epoch.each_once ? std::min(taken_, course_.epoch.rows) : taken_;
        }
        portion.taken = taken_;
        return portion;
    }

    [[nodiscard]] Batch read(const Dataset& dataset, BatchRequest& portion) override {
        return dataset.rows(portion.rows);
    }

    [[nodiscard]] std::int64_t batches() const override {
        return batches_in(order_.numel() - row_);
    }

    [[nodiscard]] std::int64_t repeated() const override {
        return std::max<std::int64_t>(taken_ - course_.epoch.rows, 0);
    }

private:
    [[nodiscard]] std::int64_t batches_in(std::int64_t rows) const {
        return course_.epoch.drop_last
                   ? rows / course_.size / course_.passes * course_.passes
                   : (rows - (grows_ ? 1 : 0) + course_.size - 1) / course_.size;
    }

    EpochPlan course_;
    std::int64_t base_; ///< rows taken before the first of order_
    at::Tensor order_;
    std::int64_t row_ = 0; ///< in order_, the next to be read
    std::int64_t end_ = 0; ///< in order_
    bool grows_ = false;   ///< the last batch grows by a row
    bool weighs_ = false;  ///< the last batch has different numbers of rows on different ranks
    std::int64_t taken_ = 0;
    std::int64_t pass_ = 0;
    std::int64_t passes_ = 1; ///< in the current step
};

/// From `rows_at()`: every step of all ranks is consecutive in one order.
class OrderBatchSampler final : public BatchSampler {
public:
    OrderBatchSampler(AnyPolicy policy, const EpochPlan& course, std::int64_t taken)
        : policy_(std::move(policy)), course_(course),
          taken_(taken), steps_{course.epoch.rows, course.size, course.sharing * course.passes,
                                course.epoch.drop_last, course.epoch.each_once} {
        if (course.epoch.rows <= 0) {
            throw DataError("RT-D7", "the data set is empty");
        }
    }

    [[nodiscard]] std::optional<BatchRequest> next() override {
        return next_of([&](const Steps& steps, std::int64_t taken,
                           std::int64_t number) -> std::optional<BatchRequest> {
            const RowRange part = steps.micro_batch(taken, number);
            if (part.begin == part.end) {
                return std::nullopt;
            }
            return BatchRequest{.rows = policy_.rows_at(course_.epoch, part.begin, part.end),
                                .place = part.begin,
                                .weight = steps.weight(taken, number)};
        });
    }
    /// The same, with `part_of(steps, taken, micro_batch)` instead of the policy; it returns
    /// nothing for a micro-batch without rows.
    template <class PartOf>
    [[nodiscard]] std::optional<BatchRequest> next_of(const PartOf& part_of) {
        std::optional<BatchRequest> portion;
        while (!portion) {
            const std::int64_t step = steps_.step_at(taken_);
            if (step == 0) {
                return std::nullopt;
            }
            portion =
                part_of(steps_, taken_, course_.place_among_sharing() * course_.passes + pass_);
            pass_ = (pass_ + 1) % course_.passes;
            taken_ += pass_ == 0 ? step : 0;
        }
        portion->ends_step = pass_ == 0;
        portion->taken = taken_;
        return portion;
    }
    [[nodiscard]] Batch read(const Dataset& dataset, BatchRequest& portion) override {
        return dataset.rows(portion.rows);
    }

    [[nodiscard]] std::int64_t batches() const override {
        const std::int64_t step = steps_.step_at(taken_);
        if (steps_.each_once && step < steps_.micro_batches) {
            const std::int64_t first = course_.place_among_sharing() * course_.passes;
            return std::clamp<std::int64_t>(step - first, 0, course_.passes);
        }
        return steps_.count_from(taken_) * course_.passes;
    }

private:
    AnyPolicy policy_;
    EpochPlan course_;
    std::int64_t taken_;
    Steps steps_;
    std::int64_t pass_ = 0;
};

} // namespace rtrain::data
