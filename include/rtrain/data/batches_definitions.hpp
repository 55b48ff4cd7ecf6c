// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door batches.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/batch_options.hpp>
#include <rtrain/data/batch/batch_stats.hpp>
#include <rtrain/data/batches.hpp>
#include <rtrain/data/dataset/unsized.hpp>
#include <rtrain/data/device_prefetch.hpp>
#include <rtrain/data/loader.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/data/order/permutation.hpp>
#include <rtrain/data/order/policy.hpp>
#include <rtrain/data/order/position.hpp>
#include <rtrain/data/order/random.hpp>
#include <rtrain/data/order/steps.hpp>
#include <rtrain/data/order/streaming.hpp>
#include <rtrain/data/stream/batch_sampler.hpp>
#include <rtrain/data/stream/index_batch_sampler.hpp>
#include <rtrain/data/stream/lane_steps.hpp>
#include <rtrain/data/stream/stream_batch_sampler.hpp>
#include <rtrain/data/stream/window_memory.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/status/loop_status.hpp>
#include <rtrain/process/status/step_clock.hpp>

#include <ATen/Context.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::data {

/// The state of an iterator: one pass through batches, which outlive it.
class Batches::Reader {
public:
    /// At the end if `pass` has ended.
    Reader(const Batches& batches, std::int64_t epoch, std::int64_t taken, Pass pass)
        : batches_(&batches), epoch_(epoch), steps_(ProcessContext::current().clock.steps()),
          reads_once_(batches.course_of(epoch).epoch.each_once),
          feed_(make_feed(batches.policy(), batches.course_of(epoch), taken)),
          loader_(new_loader()), pass_(std::move(pass)), prefetch_(batches.shard_.device) {
        const bool is_whole = taken == 0 && !pass_.has_ended();
        if (pass_.leads()) {
            ProcessContext::current().loop.begin_loop(length());
        }
        next();
        if (is_whole && pass_.has_ended()) {
            say_empty();
        }
    }

    /// None at the end.
    [[nodiscard]] bool is_at_end() const noexcept { return !read_.has_value(); }
    /// The loop receives the batch.
    [[nodiscard]] Batch& take() {
        pass_.take();
        return read_->batch;
    }
    /// The loop has finished the batch.
    void advance() {
        pass_.leave_batch();
        next();
    }

private:
    enum class Draws { of_reading, of_training };

    /// A batch and its portion, transferred together.
    struct Read {
        Batch batch;
        BatchRequest portion;
        template <class Visit>
        void each_column(Visit&& visit) {
            batch.each_column(visit);
        }
    };

    void next() {
        (void)ProcessContext::current().clock.enter(StepPart::data);
        const auto begin = StageCounter::Clock::now();
        const auto transferred = prefetch_.busy();
        read_ = pass_.has_ended() ? std::nullopt : settled();
        count(begin, prefetch_.busy() - transferred);
        (void)ProcessContext::current().clock.enter(StepPart::optimizer);
        if (!read_) {
            if (given_ && batches_->shard_.rank == 0 && !pass_.has_ended() &&
                feed_->repeated() > 0 && ProcessContext::current().clock.steps() == steps_) {
                say_repeated(pass_.position(), feed_->repeated(), batches_->shard_.dataset.size());
            }
            pass_.end();
            return;
        }
        pass_.position().advance(read_->portion.taken, read_->portion.ends_step, feed_->places());
        pass_.position().passes = read_->portion.passes;
        // A step has the same micro-batches on any number of ranks, and each counts alike.
        pass_.weigh(batches_->options_.micro_batches > 0 ? 1 : read_->portion.weight);
        ProcessContext::current().clock.add_rows(c10::GradMode::is_enabled() ? read_->batch.size()
                                                                             : 0);
        seed_generators(read_->portion.place, Draws::of_training);
    }

    /// Records that the loop requested a batch at `begin` and receives it now.
    void count(StageCounter::Clock::time_point begin, StageCounter::Clock::duration transferred) {
        BatchCounters& counters = *batches_->counters_;
        if (given_) {
            counters.loop.add_busy(begin - *given_);
        }
        given_ = StageCounter::Clock::now();
        counters.loop.add_waiting(*given_ - begin);
        counters.transfer.add_busy(transferred);
        if (read_) {
            counters.loop.add_batch(read_->batch);
            if (!batches_->shard_.device.is_cpu()) {
                counters.transfer.add_batch(read_->batch);
            }
        }
    }

    /// The next batch, on the device. If rows are not counted, it is one that all ranks take:
    /// batches read ahead may have to be read again.
    [[nodiscard]] std::optional<Read> settled() {
        auto next = prefetch_.next([this] { return read(); });
        LaneSteps* const lanes = feed_->lanes();
        while (lanes && next && !lanes->commit(next->portion, batches_->shard_.agree)) {
            loader_.reset();
            prefetch_.drop();
            if (lanes->is_over()) {
                const Batches& all = *batches_;
                if (all.position_->samples == 0 && !reads_once_ &&
                    (!all.options_.drop_last || lanes->found_none())) {
                    throw lanes->no_batch(all.shard_.is_split ? all.shard_.size : 1);
                }
                const LeftOut& left = lanes->left_out();
                all.position_->leave_out(left.lanes, left.rows,
                                         all.shard_.rank == 0 && !reads_once_);
                return std::nullopt;
            }
            lanes->restart();
            loader_ = new_loader();
            next = prefetch_.next([this] { return read(); });
        }
        return next;
    }

    /// Empty only at the end of the epoch: a batch may have no rows.
    [[nodiscard]] std::optional<Read> read() {
        if (loader_) {
            return loader_->next([this] { return next_job(); });
        }
        std::optional<BatchRequest> portion = feed_->next();
        if (!portion) {
            return std::nullopt;
        }
        seed_generators(portion->place, Draws::of_reading);
        return read(*feed_, *batches_, epoch_, std::move(*portion));
    }

    /// The next job for a thread; must not outlive the feed or the batches.
    [[nodiscard]] std::optional<Loader<Read>::Job> next_job() {
        std::optional<BatchRequest> portion = feed_->next();
        if (!portion) {
            return std::nullopt;
        }
        return [feed = feed_, batches = batches_, epoch = epoch_, portion = std::move(*portion)] {
            return read(*feed, *batches, epoch, portion);
        };
    }

    [[nodiscard]] static Read read(BatchSampler& feed, const Batches& batches, std::int64_t epoch,
                                   BatchRequest portion) {
        const ReadingFor pass(pass_of(batches, epoch));
        BatchCounters& counters = *batches.counters_;
        const auto begin = StageCounter::Clock::now();
        Batch batch = feed.read(batches.shard_.dataset, portion);
        const auto read = StageCounter::Clock::now();
        counters.read.add_busy(read - begin);
        if (!portion.is_short) { // the loop does not receive it
            counters.read.add_batch(batch);
            batch = collated(std::move(batch), batches.options_);
            counters.collate.add_busy(StageCounter::Clock::now() - read);
            counters.collate.add_batch(batch);
        }
        return {std::move(batch), std::move(portion)};
    }

    [[nodiscard]] std::unique_ptr<Loader<Read>> new_loader() const {
        const BatchOptions& options = batches_->options_;
        if (options.threads == 0) {
            return nullptr;
        }
        feed_->begin_reading();
        return std::make_unique<Loader<Read>>(
            options.threads,
            static_cast<std::size_t>(options.prefetch > 0 ? options.prefetch : 2 * options.threads),
            [feed = feed_, counters = batches_->counters_, number = pass_of(*batches_, epoch_)] {
                const ReadingFor pass(number);
                const auto begin = StageCounter::Clock::now();
                const bool has_read = feed->read_ahead();
                counters->read.add_busy(StageCounter::Clock::now() - begin);
                return has_read;
            },
            [counters = batches_->counters_](auto time) { counters->read.add_waiting(time); });
    }

    /// The length of a pass that starts where the feed does.
    [[nodiscard]] LoopStatus::Length length() const {
        const Batches& all = *batches_;
        const BatchOptions& options = all.options_;
        LoopStatus::Length length{
            .rows = options.size,
            .rows_of_all =
                options.size * std::max<std::int64_t>(options.micro_batches, all.shard_.size)};
        if (!all.shard_.dataset.uncounted()) {
            const std::int64_t left = feed_->batches();
            length.total = all.position_->samples == 0 ? left : all.batches_of(epoch_);
            length.first = std::max<std::int64_t>(length.total - left, 0);
        }
        return length;
    }

    /// The inputs of data::Random other than rows, and the memory limit of BlockRows.
    [[nodiscard]] static ReadingFor::Pass pass_of(const Batches& batches,
                                                  std::int64_t epoch) noexcept {
        const BatchOptions& options = batches.options_;
        return {hash_of(options.seed, batches.shard_.random_seed.value_or(0), epoch),
                options.shuffle, options.memory_bytes};
    }

    /// Warns once that an epoch has no batch.
    void say_empty() const {
        const Batches& all = *batches_;
        if (all.shard_.rank == 0 && all.options_.drop_last && !all.shard_.dataset.uncounted() &&
            !std::exchange(all.position_->said_empty, true)) {
            say_empty_epoch(
                all.shard_.dataset.size(), all.options_.size * all.passes(),
                all.shard_.policy.ranks_sharing(all.shard_.is_split ? all.shard_.size : 1));
        }
    }

    void seed_generators(std::int64_t place, Draws draws) const {
        if (const auto& seed = batches_->shard_.random_seed) {
            at::manual_seed(hash_of(*seed, batches_->options_.seed, epoch_, place, draws));
        }
    }

    const Batches* batches_;
    std::int64_t epoch_;
    std::int64_t steps_; ///< of StepClock, when the pass began
    bool reads_once_;    ///< each row is read once
    std::shared_ptr<BatchSampler> feed_;
    std::unique_ptr<Loader<Read>> loader_; ///< null: the loop reads
    Pass pass_;
    DevicePrefetch<Read> prefetch_;
    std::optional<Read> read_;                             ///< empty at the end
    std::optional<StageCounter::Clock::time_point> given_; ///< when the loop received it
};

RTRAIN_DOOR std::unique_ptr<BatchSampler> make_feed(const AnyPolicy& policy,
                                                    const EpochPlan& course, std::int64_t taken) {
    if (policy.lanes()) {
        return std::make_unique<StreamBatchSampler>(policy, course, taken);
    }
    if (policy.has_rows_at()) {
        return std::make_unique<OrderBatchSampler>(policy, course, taken);
    }
    return std::make_unique<IndexBatchSampler>(policy, course, taken);
}

RTRAIN_DOOR std::string order_of(const AnyPolicy& policy, const EpochPlan& course) {
    const std::string name = policy.name();
    if (name.empty()) {
        return "";
    }
    const auto lanes = policy.lanes();
    return order_name(name.c_str(), course.epoch) + (lanes ? lanes_name(*lanes, course) : "");
}

RTRAIN_DOOR
Batches::Batches(ShardSpec shard, BatchOptions options, std::shared_ptr<Position> position)
    : shard_(std::move(shard)), options_(std::move(options)), position_(std::move(position)),
      counters_(std::make_shared<BatchCounters>()), memory_(std::make_shared<WindowMemory>()) {
    require_usable(options_, shard_.size);
    // Copies to a device need pinned memory: threads that read ahead pin it, not the loop's thread.
    options_.pin_memory = options_.pin_memory || (!shard_.device.is_cpu() && options_.threads > 0);
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
        throw DataError("RT-D9", "these batches are already being iterated; call batches() again "
                                 "for a second, independent pass");
    }
    Pass pass;
    if (position_->consume_skip()) {
        LoopStack::current().skip(*position_);
    } else {
        const EpochPlan course = course_of(position_->epoch);
        position_->begin_pass(course.epoch.rows, order_of(policy(), course),
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
    return std::max<std::int64_t>(options_.micro_batches / shard_.size, 1);
}
RTRAIN_DOOR std::int64_t Batches::step_passes() const noexcept {
    return position_->passes > 0 ? position_->passes : passes();
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

RTRAIN_DOOR const AnyPolicy& Batches::policy() const {
    static const AnyPolicy streaming = Streaming{};
    if (!options_.shuffle || !shard_.policy.streams_shuffled_blocks() ||
        shard_.dataset.uncounted()) {
        return shard_.policy;
    }
    const auto blocks = shard_.dataset.blocks();
    const bool keeps =
        !blocks || (blocks->source().is_fixed() && blocks->bytes() <= options_.memory_bytes);
    return keeps ? shard_.policy : streaming;
}

RTRAIN_DOOR EpochPlan Batches::course_of(std::int64_t epoch) const {
    const AnyPolicy& policy = this->policy();
    const bool replicates =
        &policy != &shard_.policy && shard_.policy.ranks_sharing(shard_.size) == 1;
    const bool is_split = shard_.is_split && !replicates;
    const int ranks = is_split ? shard_.size : 1;
    const auto uncounted = shard_.policy.lanes() ? shard_.dataset.uncounted() : nullptr;
    const Dataset* const rows = uncounted ? uncounted->input() : &shard_.dataset;
    return {{rows ? rows->size() : 0, is_split ? shard_.rank : 0, ranks, epoch, options_.shuffle,
             options_.seed, options_.drop_last,
             options_.each_row_once.value_or(!c10::GradMode::is_enabled())},
            options_.size,
            passes(),
            policy.ranks_sharing(ranks),
            rows ? rows->blocks() : nullptr,
            options_.memory_bytes,
            memory_,
            uncounted,
            position_->lanes,
            options_.threads,
            rows ? rows->content() : 0};
}

RTRAIN_DOOR std::int64_t Batches::batches_of(std::int64_t epoch) const {
    return make_feed(policy(), course_of(epoch), 0)->batches();
}

} // namespace rtrain::data
