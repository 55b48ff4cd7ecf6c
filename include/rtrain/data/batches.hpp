// SPDX-License-Identifier: Apache-2.0
/// @file
/// A rank's rows in batches, one pass after the other, and the place reached in them.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch.hpp>
#include <rtrain/data/batch_options.hpp>
#include <rtrain/data/batch_stats.hpp>
#include <rtrain/data/dataset.hpp>
#include <rtrain/data/device_prefetch.hpp>
#include <rtrain/data/feed.hpp>
#include <rtrain/data/lane_steps.hpp>
#include <rtrain/data/loader.hpp>
#include <rtrain/data/loops.hpp>
#include <rtrain/data/permutation.hpp>
#include <rtrain/data/policy.hpp>
#include <rtrain/data/position.hpp>
#include <rtrain/data/random.hpp>
#include <rtrain/data/steps.hpp>
#include <rtrain/data/stream_feed.hpp>
#include <rtrain/data/uncounted.hpp>
#include <rtrain/process/loop_status.hpp>
#include <rtrain/process/step_clock.hpp>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

/// One pass after the other over this rank's rows. Each `begin()` starts a new epoch, except the
/// first after a resumed checkpoint, which goes on where the checkpoint was taken, also on another
/// number of ranks.
template <DataPolicy D>
class Batches {
public:
    /// `position` is shared with whoever saves it. Batches are read on the CPU and sent to
    /// `device`, one ahead of the loop. With `random_seed`, each batch seeds torch's generators
    /// from it and its own place in the epoch. Unless it `is_split`, each rank reads the whole data
    /// set, whatever the policy. Rows that are not counted need `agree`.
    Batches(Dataset dataset, D policy, int rank, int size, at::Device device, BatchOptions options,
            std::shared_ptr<Position> position,
            std::optional<std::uint64_t> random_seed = std::nullopt, bool is_split = true,
            GreatestOfRanks agree = nullptr)
        : dataset_(std::move(dataset)), policy_(std::move(policy)), rank_(rank), size_(size),
          device_(device), options_(options), position_(std::move(position)),
          random_seed_(random_seed), is_split_(is_split), agree_(std::move(agree)) {
        require_usable(options_, size);
    }

    /// Reads the next batch when it is advanced.
    class Iterator {
    public:
        using value_type = Batch;
        using difference_type = std::ptrdiff_t;

        /// At the end when `pass` has ended.
        Iterator(const Batches& batches, std::int64_t epoch, std::int64_t taken, Pass pass)
            : batches_(&batches), epoch_(epoch),
              feed_(std::make_shared<Feed<D>>(batches.policy_, batches.course_of(epoch), taken)),
              loader_(batches.new_loader(feed_, epoch)), pass_(std::move(pass)),
              prefetch_(batches.device_) {
            const bool is_whole = taken == 0 && !pass_.has_ended();
            if (pass_.leads()) {
                LoopStatus::current().begin_loop(batches.length_of(*feed_, epoch));
            }
            next();
            if (is_whole && pass_.has_ended()) {
                batches.say_empty();
            }
        }

        [[nodiscard]] Batch& operator*() {
            pass_.take();
            return read_->batch;
        }
        Iterator& operator++() {
            pass_.leave_batch();
            next();
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const Iterator& self, std::default_sentinel_t /*end*/) {
            return !self.read_.has_value();
        }

    private:
        friend Batches;

        /// A batch and where it belongs, which travel together.
        struct Read {
            Batch batch;
            Portion portion;
            template <class Visit>
            void each_column(Visit&& visit) {
                batch.each_column(visit);
            }
        };

        void next() {
            (void)StepClock::current().enter(StepPart::data);
            const auto begin = StageCounter::Clock::now();
            const auto transferred = prefetch_.busy();
            read_ = pass_.has_ended() ? std::nullopt : settled();
            count(begin, prefetch_.busy() - transferred);
            (void)StepClock::current().enter(StepPart::optimizer);
            if (!read_) {
                pass_.end();
                return;
            }
            pass_.position().advance(read_->portion.taken, read_->portion.ends_step,
                                     feed_->places());
            StepClock::current().add_rows(c10::GradMode::is_enabled() ? read_->batch.size() : 0);
            batches_->seed_generators(epoch_, read_->portion.place, Draws::of_training);
        }

        /// The loop came for a batch at `begin`, and gets it now.
        void count(StageCounter::Clock::time_point begin,
                   StageCounter::Clock::duration transferred) {
            BatchCounters& counters = *batches_->counters_;
            if (given_) {
                counters.loop.add_busy(begin - *given_);
            }
            given_ = StageCounter::Clock::now();
            counters.loop.add_waiting(*given_ - begin);
            counters.transfer.add_busy(transferred);
            if (read_) {
                counters.loop.add_batch(read_->batch);
                if (!batches_->device_.is_cpu()) {
                    counters.transfer.add_batch(read_->batch);
                }
            }
        }

        /// The next batch, on the device. Where rows are not counted, one that all ranks take: what
        /// is read ahead of that may have to be read again.
        [[nodiscard]] std::optional<Read> settled() {
            auto next = prefetch_.next([this] { return read(); });
            if constexpr (detail::HasLanes<D>) {
                LaneSteps* const lanes = feed_->lanes();
                while (lanes && next && !lanes->settle(next->portion, batches_->agree_)) {
                    loader_.reset();
                    prefetch_.drop();
                    if (lanes->is_over()) {
                        const LeftOut& left = lanes->left_out();
                        batches_->position_->leave_out(left.lanes, left.rows, batches_->rank_ == 0);
                        return std::nullopt;
                    }
                    lanes->restart();
                    loader_ = batches_->new_loader(feed_, epoch_);
                    next = prefetch_.next([this] { return read(); });
                }
            }
            return next;
        }

        /// Empty at the end of the epoch, and only there: a batch may have no rows.
        [[nodiscard]] std::optional<Read> read() {
            if (loader_) {
                return loader_->next([this] { return next_job(); });
            }
            std::optional<Portion> portion = feed_->next();
            if (!portion) {
                return std::nullopt;
            }
            batches_->seed_generators(epoch_, portion->place, Draws::of_reading);
            return read(*feed_, *batches_, epoch_, std::move(*portion));
        }

        /// What a thread is to do; it may outlive neither the feed nor the batches.
        [[nodiscard]] std::optional<typename Loader<Read>::Job> next_job() {
            std::optional<Portion> portion = feed_->next();
            if (!portion) {
                return std::nullopt;
            }
            return
                [feed = feed_, batches = batches_, epoch = epoch_, portion = std::move(*portion)] {
                    return read(*feed, *batches, epoch, portion);
                };
        }

        [[nodiscard]] static Read read(Feed<D>& feed, const Batches& batches, std::int64_t epoch,
                                       Portion portion) {
            const ReadingFor pass(batches.pass_of(epoch));
            BatchCounters& counters = *batches.counters_;
            const auto begin = StageCounter::Clock::now();
            Batch batch = feed.read(batches.dataset_, portion);
            const auto read = StageCounter::Clock::now();
            counters.read.add_busy(read - begin);
            if (!portion.is_short) { // which no loop gets
                counters.read.add_batch(batch);
                batch = collated(std::move(batch), batches.options_);
                counters.collate.add_busy(StageCounter::Clock::now() - read);
                counters.collate.add_batch(batch);
            }
            return {std::move(batch), std::move(portion)};
        }

        const Batches* batches_;
        std::int64_t epoch_;
        std::shared_ptr<Feed<D>> feed_;
        std::unique_ptr<Loader<Read>> loader_; ///< null: the loop reads
        Pass pass_;
        DevicePrefetch<Read> prefetch_;
        std::optional<Read> read_;                             ///< empty at the end
        std::optional<StageCounter::Clock::time_point> given_; ///< when the loop has got it
    };

    [[nodiscard]] Iterator begin() const {
        if (position_->iterating) {
            throw DataError("RT-D9", "a loop over these batches is still under way; call "
                                     "batches() again for a second, independent pass");
        }
        if (position_->skips_pass()) {
            Loops::current().skip(*position_);
            return Iterator(*this, position_->epoch, position_->samples, Pass());
        }
        const Course course = course_of(position_->epoch);
        position_->begin_pass(course.epoch.rows, order_of(course),
                              course.blocks ? course.blocks->digest() : 0, course.content);
        return Iterator(*this, position_->epoch, position_->samples,
                        Pass(position_, c10::GradMode::is_enabled()));
    }
    [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

    /// Batches in a whole epoch of this rank. Throws DataError [RT-D71] where rows are not counted.
    [[nodiscard]] std::int64_t size() const { return Feed<D>(policy_, course_of(0), 0).batches(); }
    /// Batches of this rank in a step, more than 1 only with `micro_batches`.
    [[nodiscard]] std::int64_t passes() const noexcept {
        return std::max<std::int64_t>(options_.micro_batches / size_, 1);
    }
    /// Whether the batch that the loop is at is this rank's last one in its step.
    [[nodiscard]] bool step_ends() const noexcept { return !position_->within_step; }

    /// Where the time of all passes so far went, also while a loop is under way.
    ///
    /// @code
    /// std::cout << to_string(batches.stats());
    /// @endcode
    [[nodiscard]] BatchStats stats() const { return counters_->stats(); }

    /// The epoch that the next pass, or the one under way, has for its permutation.
    [[nodiscard]] std::int64_t epoch() const noexcept { return position_->epoch; }
    /// Reshuffles as in this epoch from the next pass on (DistributedSampler's set_epoch). A
    /// resumed run that says the epoch which its checkpoint was made in goes on there.
    void set_epoch(std::int64_t epoch) { position_->set_epoch(epoch); }

    /// Rows that the last whole pass did not read, because they are not counted and not every rank
    /// would have had some: of what filter() and flat_map() make others of.
    [[nodiscard]] std::int64_t left_out() const noexcept { return position_->left_out; }

private:
    enum class Draws { of_reading, of_training };

    [[nodiscard]] Course course_of(std::int64_t epoch) const {
        const int ranks = is_split_ ? size_ : 1;
        const auto uncounted = detail::HasLanes<D> ? dataset_.uncounted() : nullptr;
        const Dataset* const rows = uncounted ? uncounted->input() : &dataset_;
        return {{rows ? rows->size() : 0, is_split_ ? rank_ : 0, ranks, epoch, options_.shuffle,
                 options_.seed, options_.drop_last},
                options_.size,
                passes(),
                policy_.ranks_sharing(ranks),
                rows ? rows->blocks() : nullptr,
                options_.memory_bytes,
                uncounted,
                position_->lanes,
                options_.threads,
                rows ? rows->content() : 0};
    }

    /// What a position counts in.
    [[nodiscard]] std::string order_of(const Course& course) const {
        std::string order;
        if constexpr (detail::HasOrderName<D>) {
            order = order_name(D::name, course.epoch);
            if constexpr (detail::HasLanes<D>) {
                order += lanes_name(policy_, course);
            }
        }
        return order;
    }

    [[nodiscard]] std::unique_ptr<Loader<typename Iterator::Read>>
    new_loader(const std::shared_ptr<Feed<D>>& feed, std::int64_t epoch) const {
        if (options_.threads == 0) {
            return nullptr;
        }
        std::function<bool()> read_ahead;
        if constexpr (detail::HasLanes<D>) {
            feed->begin_reading();
            read_ahead = [feed, counters = counters_, number = pass_of(epoch)] {
                const ReadingFor pass(number);
                const auto begin = StageCounter::Clock::now();
                const bool has_read = feed->read_ahead();
                counters->read.add_busy(StageCounter::Clock::now() - begin);
                return has_read;
            };
        }
        return std::make_unique<Loader<typename Iterator::Read>>(
            options_.threads,
            static_cast<std::size_t>(options_.prefetch > 0 ? options_.prefetch
                                                           : 2 * options_.threads),
            std::move(read_ahead),
            [counters = counters_](auto time) { counters->read.add_waiting(time); });
    }

    /// Of a pass that goes on where `rest` begins.
    [[nodiscard]] LoopStatus::Length length_of(const Feed<D>& rest, std::int64_t epoch) const {
        LoopStatus::Length length{
            .rows = options_.size,
            .rows_of_all = options_.size * std::max<std::int64_t>(options_.micro_batches, size_)};
        if (!dataset_.uncounted()) {
            const std::int64_t left = rest.batches();
            length.total =
                position_->samples == 0 ? left : Feed<D>(policy_, course_of(epoch), 0).batches();
            length.first = std::max<std::int64_t>(length.total - left, 0);
        }
        return length;
    }

    /// What data::Random depends on besides the rows.
    [[nodiscard]] std::uint64_t pass_of(std::int64_t epoch) const noexcept {
        return hash_of(options_.seed, random_seed_.value_or(0), epoch);
    }

    /// Once: an epoch has no batch.
    void say_empty() const {
        if (rank_ == 0 && options_.drop_last && !dataset_.uncounted() &&
            !std::exchange(position_->said_empty, true)) {
            say_empty_epoch(dataset_.size(), options_.size * passes(),
                            policy_.ranks_sharing(is_split_ ? size_ : 1));
        }
    }

    void seed_generators(std::int64_t epoch, std::int64_t place, Draws draws) const {
        if (random_seed_) {
            at::manual_seed(hash_of(*random_seed_, options_.seed, epoch, place, draws));
        }
    }

    Dataset dataset_;
    D policy_;
    int rank_;
    int size_;
    at::Device device_;
    BatchOptions options_;
    std::shared_ptr<Position> position_;
    std::optional<std::uint64_t> random_seed_;
    bool is_split_;
    GreatestOfRanks agree_;
    std::shared_ptr<BatchCounters> counters_ = std::make_shared<BatchCounters>();
};

} // namespace rtrain::data
