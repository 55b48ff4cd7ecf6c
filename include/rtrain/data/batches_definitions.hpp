// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door batches.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/batch_reader.hpp>
#include <rtrain/data/batches.hpp>
#include <rtrain/data/feed.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/data/policy.hpp>
#include <rtrain/data/position.hpp>
#include <rtrain/data/row_feeds.hpp>
#include <rtrain/data/steps.hpp>
#include <rtrain/data/stream_feed.hpp>
#include <rtrain/data/uncounted.hpp>
#include <rtrain/data/window_memory.hpp>

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace rtrain::data {

RTRAIN_DOOR std::unique_ptr<Feed> make_feed(const AnyPolicy& policy, const Course& course,
                                            std::int64_t taken) {
    if (policy.lanes()) {
        return std::make_unique<StreamFeed>(policy, course, taken);
    }
    if (policy.has_rows_at()) {
        return std::make_unique<OrderFeed>(policy, course, taken);
    }
    return std::make_unique<RankFeed>(policy, course, taken);
}

RTRAIN_DOOR std::string order_of(const AnyPolicy& policy, const Course& course) {
    const std::string name = policy.name();
    if (name.empty()) {
        return name;
    }
    const auto lanes = policy.lanes();
    return order_name(name.c_str(), course.epoch) + (lanes ? lanes_name(*lanes, course) : "");
}

RTRAIN_DOOR
Batches::Batches(Dataset dataset, AnyPolicy policy, int rank, int size, at::Device device,
                 BatchOptions options, std::shared_ptr<Position> position,
                 std::optional<std::uint64_t> random_seed, bool is_split, GreatestOfRanks agree)
    : dataset_(std::move(dataset)), policy_(std::move(policy)), rank_(rank), size_(size),
      device_(device), options_(std::move(options)), position_(std::move(position)),
      random_seed_(random_seed), is_split_(is_split), agree_(std::move(agree)),
      counters_(std::make_shared<BatchCounters>()), memory_(std::make_shared<WindowMemory>()) {
    require_usable(options_, size);
}

RTRAIN_DOOR Batches::Iterator::Iterator(std::unique_ptr<Reader> reader) noexcept
    : reader_(std::move(reader)) {}
RTRAIN_DOOR Batches::Iterator::Iterator(Iterator&& other) noexcept = default;
RTRAIN_DOOR Batches::Iterator& Batches::Iterator::operator=(Iterator&& other) noexcept = default;
RTRAIN_DOOR Batches::Iterator::~Iterator() = default;

RTRAIN_DOOR Batch& Batches::Iterator::operator*() {
    return reader_->take();
}
RTRAIN_DOOR Batches::Iterator& Batches::Iterator::operator++() {
    reader_->advance();
    return *this;
}
RTRAIN_DOOR bool Batches::Iterator::is_at_end() const noexcept {
    return reader_->is_at_end();
}

RTRAIN_DOOR Batches::Iterator Batches::begin() const {
    if (position_->iterating) {
        throw DataError("RT-D9", "a loop over these batches is still under way; call "
                                 "batches() again for a second, independent pass");
    }
    Pass pass;
    if (position_->skips_pass()) {
        Loops::current().skip(*position_);
    } else {
        const Course course = course_of(position_->epoch);
        position_->begin_pass(course.epoch.rows, order_of(policy_, course),
                              course.blocks ? course.blocks->digest() : 0, course.content);
        pass = Pass(position_, c10::GradMode::is_enabled());
    }
    return Iterator(
        std::make_unique<Reader>(*this, position_->epoch, position_->samples, std::move(pass)));
}

RTRAIN_DOOR std::int64_t Batches::size() const {
    return batches_of(0);
}
RTRAIN_DOOR std::int64_t Batches::passes() const noexcept {
    return std::max<std::int64_t>(options_.micro_batches / size_, 1);
}
RTRAIN_DOOR bool Batches::step_ends() const noexcept {
    return !position_->within_step;
}
RTRAIN_DOOR BatchStats Batches::stats() const {
    return counters_->stats();
}
RTRAIN_DOOR std::int64_t Batches::epoch() const noexcept {
    return position_->epoch;
}
RTRAIN_DOOR void Batches::set_epoch(std::int64_t epoch) {
    position_->set_epoch(epoch);
}
RTRAIN_DOOR std::int64_t Batches::left_out() const noexcept {
    return position_->left_out;
}

RTRAIN_DOOR Course Batches::course_of(std::int64_t epoch) const {
    const int ranks = is_split_ ? size_ : 1;
    const auto uncounted = policy_.lanes() ? dataset_.uncounted() : nullptr;
    const Dataset* const rows = uncounted ? uncounted->input() : &dataset_;
    return {{rows ? rows->size() : 0, is_split_ ? rank_ : 0, ranks, epoch, options_.shuffle,
             options_.seed, options_.drop_last},
            options_.size,
            passes(),
            policy_.ranks_sharing(ranks),
            rows ? rows->blocks() : nullptr,
            options_.memory_bytes,
            memory_,
            uncounted,
            position_->lanes,
            options_.threads,
            rows ? rows->content() : 0};
}

RTRAIN_DOOR std::int64_t Batches::batches_of(std::int64_t epoch) const {
    return make_feed(policy_, course_of(epoch), 0)->batches();
}

} // namespace rtrain::data
