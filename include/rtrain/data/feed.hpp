// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which rows a rank reads next, batch by batch, in an epoch that may have been entered in the
/// middle: from a policy's rows of this rank, or from places in an order of all ranks.
/// stream_feed.hpp has those over blocks.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch.hpp>
#include <rtrain/data/block_index.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/data/policy.hpp>
#include <rtrain/data/position.hpp>
#include <rtrain/data/steps.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain::data {

class Uncounted;
struct LaneStep;

/// How a rank goes through an epoch.
struct Course {
    EpochRequest epoch;
    std::int64_t size = 1;   ///< rows of a batch
    std::int64_t passes = 1; ///< batches that this rank takes in a step
    /// How many ranks split the rows; this rank is one of them, or reads everything.
    std::int64_t sharing = 1;
    /// Of a data set that is read in blocks; null: by row number.
    std::shared_ptr<const BlockIndex> blocks = nullptr;
    std::int64_t memory_bytes = 0; ///< for what is kept of these
    /// Of rows that are not counted; `rows` and `blocks` are of what they are made of. They go on
    /// at `lanes`; none: at the beginning.
    std::shared_ptr<const Uncounted> uncounted = nullptr;
    std::vector<LanePlace> lanes = {};
    std::int64_t threads = 0; ///< that read ahead
    std::uint64_t content =
        0; ///< of the data set, or what its rows are made of: Dataset::content()

    [[nodiscard]] std::int64_t place_among_sharing() const noexcept {
        return sharing > 1 ? epoch.rank : 0;
    }
};

struct StreamPlan; // stream_reader.hpp

/// One batch to be read.
struct Portion {
    at::Tensor rows = {};   ///< by number; undefined where there are places
    std::int64_t place = 0; ///< of its first row in the order of all ranks
    std::int64_t taken = 0; ///< by all ranks, in whole steps, once this batch is
    bool ends_step = true;  ///< this rank's last one of the step
    std::shared_ptr<StreamPlan> plan = nullptr; ///< of a StreamFeed over blocks
    // Of LaneSteps.
    std::int64_t number = 0;                        ///< in the order of reading
    std::int64_t pass = 0;                          ///< of the step
    bool is_short = false;                          ///< it has too few rows to be taken
    std::shared_ptr<const LaneStep> step = nullptr; ///< once the first pass was read
};

/// From `order()`: the rows of this rank, made at once.
template <DataPolicy D>
class RankFeed {
public:
    RankFeed(const D& policy, const Course& course, std::int64_t taken)
        : course_(course), base_(detail::HasRest<D> ? taken : 0) {
        if constexpr (detail::HasRest<D>) {
            order_ = policy.order(course.epoch, taken);
        } else {
            order_ = policy.order(course.epoch);
            row_ = std::min(order_.numel(), taken / course.sharing);
        }
        end_ = std::min(order_.numel(), row_ + batches_in(order_.numel() - row_) * course.size);
        taken_ = base_ + row_ * course.sharing;
    }

    /// Empty at the end of the epoch.
    [[nodiscard]] std::optional<Portion> next() {
        if (row_ >= end_) {
            return std::nullopt;
        }
        Portion portion;
        portion.place = base_ + row_ * course_.sharing + course_.place_among_sharing();
        const std::int64_t begin = row_;
        row_ = std::min(end_, row_ + course_.size);
        portion.rows = order_.slice(0, begin, row_);
        pass_ = (pass_ + 1) % course_.passes;
        portion.ends_step = pass_ == 0 || row_ == end_;
        if (portion.ends_step) {
            taken_ = base_ + row_ * course_.sharing;
        }
        portion.taken = taken_;
        return portion;
    }

    [[nodiscard]] static Batch read(const Dataset& dataset, const Portion& portion) {
        return dataset.rows(portion.rows);
    }

    /// None: see StreamFeed.
    [[nodiscard]] static std::vector<LanePlace> places() { return {}; }

    /// Batches from here to the end of the epoch.
    [[nodiscard]] std::int64_t batches() const { return batches_in(order_.numel() - row_); }

private:
    [[nodiscard]] std::int64_t batches_in(std::int64_t rows) const {
        return course_.epoch.drop_last ? rows / course_.size / course_.passes * course_.passes
                                       : rows / course_.size + (rows % course_.size == 0 ? 0 : 1);
    }

    Course course_;
    std::int64_t base_; ///< rows taken before the first of order_
    at::Tensor order_;
    std::int64_t row_ = 0; ///< of order_, the next to be read
    std::int64_t end_ = 0; ///< of order_
    std::int64_t taken_ = 0;
    std::int64_t pass_ = 0;
};

/// From `rows_at()`: every step of all ranks is consecutive in one order.
template <DataPolicy D>
class OrderFeed {
public:
    OrderFeed(const D& policy, const Course& course, std::int64_t taken)
        : policy_(&policy), course_(course),
          taken_(taken), steps_{course.epoch.rows, course.size, course.sharing * course.passes,
                                course.epoch.drop_last} {
        if (course.epoch.rows <= 0) {
            throw DataError("RT-D7", "the data set is empty");
        }
    }

    /// Empty at the end of the epoch.
    [[nodiscard]] std::optional<Portion> next() {
        return next_of([&](const Steps& steps, std::int64_t taken, std::int64_t number) {
            const RowRange part = steps.micro_batch(taken, number);
            return Portion{.rows = policy_->rows_at(course_.epoch, part.begin, part.end),
                           .place = part.begin};
        });
    }
    /// The same, with `part_of(steps, taken, micro_batch)` in place of the policy.
    template <class PartOf>
    [[nodiscard]] std::optional<Portion> next_of(const PartOf& part_of) {
        const std::int64_t step = steps_.step_at(taken_);
        if (step == 0) {
            return std::nullopt;
        }
        Portion portion =
            part_of(steps_, taken_, course_.place_among_sharing() * course_.passes + pass_);
        pass_ = (pass_ + 1) % course_.passes;
        portion.ends_step = pass_ == 0;
        taken_ += portion.ends_step ? step : 0;
        portion.taken = taken_;
        return portion;
    }
    [[nodiscard]] static Batch read(const Dataset& dataset, const Portion& portion) {
        return dataset.rows(portion.rows);
    }

    [[nodiscard]] static std::vector<LanePlace> places() { return {}; }
    [[nodiscard]] std::int64_t batches() const {
        return steps_.count_from(taken_) * course_.passes;
    }

private:
    const D* policy_;
    Course course_;
    std::int64_t taken_;
    Steps steps_;
    std::int64_t pass_ = 0;
};

template <DataPolicy D>
class StreamFeed; // stream_feed.hpp

/// next() says what to read, and read() reads it, called by any threads.
template <DataPolicy D>
using Feed =
    std::conditional_t<detail::HasLanes<D>, StreamFeed<D>,
                       std::conditional_t<detail::HasRowsAt<D>, OrderFeed<D>, RankFeed<D>>>;

} // namespace rtrain::data
