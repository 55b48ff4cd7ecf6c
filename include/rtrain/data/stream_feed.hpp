// SPDX-License-Identifier: Apache-2.0
/// @file
/// The batches of a rank whose policy reads blocks in lanes.
#pragma once

#include <rtrain/data/batch.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/data/feed.hpp>
#include <rtrain/data/permutation.hpp>
#include <rtrain/data/policy.hpp>
#include <rtrain/data/steps.hpp>
#include <rtrain/data/stream_order.hpp>
#include <rtrain/data/stream_reader.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::data {

/// Lanes and windows in which `policy` streams a course's blocks. Throws DataError [RT-D20,
/// RT-D22].
template <DataPolicy D>
requires detail::HasLanes<D>
[[nodiscard]] StreamShape stream_shape(const D& policy, const Course& course) {
    return stream_shape(*course.blocks, policy.lanes, course.sharing, course.memory_bytes);
}

/// What order_name() lacks: what else the order over these blocks depends on.
[[nodiscard]] inline std::string name_of(const StreamShape& shape, bool shuffle) {
    return ", " + std::to_string(shape.lanes) + " lanes" +
           (shuffle ? ", windows of " + std::to_string(shape.window) + " rows" : "");
}

/// From `lanes`, over blocks: every step of all ranks is consecutive in a StreamOrder, and each
/// micro-batch has places of its own lanes. Over rows by number: as OrderFeed. Nothing is read
/// before the first batch.
template <DataPolicy D>
class StreamFeed {
public:
    StreamFeed(const D& policy, const Course& course, std::int64_t taken)
        : course_(course), rows_(policy, course, taken) {
        if (course_.blocks) {
            shape_ = stream_shape(policy, course_);
        }
    }

    /// Empty at the end of the epoch.
    [[nodiscard]] std::optional<Portion> next() {
        if (!course_.blocks) {
            return rows_.next();
        }
        if (!reader_) {
            const EpochRequest& epoch = course_.epoch;
            reader_.emplace(course_.blocks,
                            StreamOrder(course_.blocks->ends(), shape_, epoch.shuffle,
                                        hash_of(epoch.seed, epoch.epoch)),
                            course_.memory_bytes);
        }
        return rows_.next_of([&](const Steps& steps, std::int64_t taken, std::int64_t number) {
            const StridedPlaces places = steps.strided_micro_batch(taken, number, shape_.lanes);
            const bool comes_back = course_.passes > 1 && shape_.lanes % steps.micro_batches != 0;
            return Portion{
                .place = places.first,
                .plan = reader_->plan(places, comes_back ? std::optional(taken) : std::nullopt)};
        });
    }

    /// What next() has said; once it is read, the portion holds no windows any more.
    [[nodiscard]] Batch read(const Dataset& dataset, Portion& portion) {
        if (!course_.blocks) {
            return rows_.read(dataset, portion);
        }
        const auto plan = std::exchange(portion.plan, nullptr);
        return reader_->rows(*plan);
    }

    /// Something that a later portion will need. False when there is nothing to do now.
    [[nodiscard]] bool read_ahead() { return reader_ && reader_->read_ahead(); }

    [[nodiscard]] std::int64_t batches() const { return rows_.batches(); }

private:
    Course course_;
    OrderFeed<D> rows_;
    StreamShape shape_;
    std::optional<StreamReader> reader_;
};

} // namespace rtrain::data
