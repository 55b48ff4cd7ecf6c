// SPDX-License-Identifier: Apache-2.0
/// @file
/// How the loops over batches of a thread lie in each other, which a checkpoint has to know: a run
/// that goes on begins its training function anew, and must come back to the same batch of each.
/// Cost tier 0: std only.
///
/// A loop is around another when the other began while the body of the first had its batch. Loops
/// that are advanced by hand, side by side, are not: each began before the other had a batch. The
/// body of an epoch is that of worker.epochs().
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/position.hpp>
#include <rtrain/process/loop_status.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::data {

class Loops {
public:
    /// A moment. Each is later than all before.
    using Time = std::int64_t;

    /// A pass that is under way.
    struct Loop {
        std::shared_ptr<Position> position;
        bool trains; ///< false: nothing in it can compute gradients, it evaluates
        Time began;
        Time taken = 0;            ///< when the body got the batch; 0: it has not
        bool saved_around = false; ///< a checkpoint takes it for a loop around another
        bool leads = false;        ///< it shows how far training is: the first of those that train
    };

    /// Those of the calling thread.
    [[nodiscard]] static Loops& current() {
        thread_local Loops loops;
        return loops;
    }

    [[nodiscard]] std::unique_ptr<Loop> begin(std::shared_ptr<Position> position, bool trains) {
        forget_past(*position);
        position->finished.reserve(position->finished.size() + 1); // end() must not throw
        auto loop = std::make_unique<Loop>(Loop{std::move(position), trains, ++clock_});
        loop->leads = trains && std::ranges::none_of(
                                    under_way_, [](const Loop* other) { return other->trains; });
        loop->position->iterating = true;
        under_way_.push_back(loop.get());
        return loop;
    }

    /// The body gets the batch.
    void take(Loop& loop) noexcept {
        if (loop.taken == 0) {
            loop.taken = ++clock_;
        }
    }

    /// The body is done with the batch. Throws DataError [RT-D16].
    void leave_body(Loop& loop) {
        require_closed(loop.saved_around, loop.taken);
        loop.saved_around = false;
        loop.taken = 0;
    }

    void end(const Loop& loop) noexcept {
        std::erase(under_way_, &loop);
        Time body = epoch_ < loop.began ? epoch_ : 0;
        const Loop* ended_in = nullptr;
        for (const Loop* other : under_way_) {
            if (other->taken < loop.began) {
                body = std::max(body, other->taken);
            } else {
                ended_in = other;
            }
        }
        if (body != 0) {
            loop.position->finished.push_back({.epoch = loop.position->epoch,
                                               .trains = loop.trains,
                                               .body = body,
                                               .ended_in = ended_in ? ended_in->began : 0});
        }
        loop.position->finish_epoch();
    }

    /// A pass that trains is passed over: a checkpoint made behind it must know of it, too.
    void skip(Position& position) const {
        Time body = epoch_;
        for (const Loop* loop : under_way_) {
            body = std::max(body, loop->taken);
        }
        forget_past(position);
        if (body != 0) {
            position.finished.push_back(
                {.epoch = position.epoch, .trains = true, .body = body, .ended_in = 0});
        }
    }

    /// Throws DataError [RT-D16].
    void begin_epoch() {
        require_closed(epoch_saved_around_, epoch_);
        epoch_saved_around_ = false;
        epoch_ = ++clock_;
    }
    void leave_epochs() noexcept {
        epoch_saved_around_ = false;
        epoch_ = 0;
    }

    /// The one loop that is under way; null when there is none, or more than one.
    [[nodiscard]] const Loop* only() const noexcept {
        return under_way_.size() == 1 ? under_way_.front() : nullptr;
    }
    /// The loop over a series of batches; null when none is under way.
    [[nodiscard]] const Loop* over(const Position& position) const noexcept {
        const auto found = std::ranges::find_if(
            under_way_, [&](const Loop* loop) { return loop->position.get() == &position; });
        return found == under_way_.end() ? nullptr : *found;
    }
    /// Whether another loop goes on in the body of this one.
    [[nodiscard]] bool is_around_another(const Loop& loop) const noexcept {
        return loop.taken != 0 && std::ranges::any_of(under_way_, [&](const Loop* other) {
                   return other->began > loop.taken && other->taken != 0;
               });
    }
    /// Whether there is a loop in the body of the epoch that is not over.
    [[nodiscard]] bool within_epoch() const noexcept {
        return epoch_ != 0 && std::ranges::any_of(under_way_, [this](const Loop* loop) {
                   return loop->began > epoch_ && loop->taken != 0;
               });
    }
    /// The passes over a series of batches that have ended in bodies which a run that goes on from
    /// here begins again: those that a loop is under way in.
    [[nodiscard]] std::vector<FinishedPass> finished(const Position& position) const {
        std::vector<FinishedPass> passes;
        std::ranges::copy_if(position.finished, std::back_inserter(passes),
                             [this](const FinishedPass& pass) { return begins_again(pass.body); });
        return passes;
    }
    /// Every loop that a checkpoint made now must know the place of: not those that are held from
    /// before the epoch.
    template <class Visit>
    void each_in_epoch(Visit&& visit) const {
        for (const Loop* loop : under_way_) {
            if (loop->began > epoch_ && loop->taken != 0) {
                visit(*loop);
            }
        }
    }

    /// A checkpoint is made: what it takes for a loop around others has to be one.
    void note_saved() noexcept {
        for (Loop* loop : under_way_) {
            loop->saved_around = loop->saved_around || is_around_another(*loop);
        }
        epoch_saved_around_ = epoch_saved_around_ || within_epoch();
    }

private:
    [[nodiscard]] bool is_open(Time body) const noexcept {
        return body == epoch_ || std::ranges::any_of(under_way_, [&](const Loop* loop) {
                   return loop->taken == body;
               });
    }

    [[nodiscard]] bool begins_again(Time body) const noexcept {
        return body == epoch_ ? within_epoch()
                              : std::ranges::any_of(under_way_, [&](const Loop* loop) {
                                    return loop->taken == body && is_around_another(*loop);
                                });
    }

    /// When a pass begins: forgets those whose body is over, and those that it goes on with because
    /// another loop, which is still under way, advances these batches by hand, again and again.
    void forget_past(Position& position) const {
        std::erase_if(position.finished, [this](const FinishedPass& pass) {
            return !is_open(pass.body) || std::ranges::any_of(under_way_, [&](const Loop* loop) {
                return loop->began == pass.ended_in;
            });
        });
    }

    /// When a body is left that a checkpoint was made in.
    void require_closed(bool saved_around, Time body) const {
        if (saved_around &&
            std::ranges::any_of(under_way_, [&](const Loop* loop) { return loop->began > body; })) {
            throw DataError(
                "RT-D16", "a checkpoint was made while a loop over batches went on in the body of "
                          "another loop, but it goes on behind that body, and a resumed run "
                          "would not find its place; begin iterators that are advanced by hand "
                          "before the loop that advances them");
        }
    }

    std::vector<Loop*> under_way_; ///< in the order in which they began
    Time clock_ = 0;
    Time epoch_ = 0; ///< when the epoch under way began; 0: outside of worker.epochs()
    bool epoch_saved_around_ = false;
};

/// What an iterator holds while it goes through the data: the epoch ends with end(), at the latest
/// when the iterator goes, for example because the loop was left early.
class Pass {
public:
    /// Called before each batch but the first is taken: what the last one was used for is done.
    using BetweenBatches = std::function<void(const Loops::Loop&)>;

    /// Asked before each batch, and true when the loop is to end instead of taking it.
    using EndsHere = std::function<bool(const Loops::Loop&)>;

    /// One that has ended.
    Pass() = default;
    Pass(std::shared_ptr<Position> position, bool trains)
        : loop_(Loops::current().begin(std::move(position), trains)) {
        end_if_asked();
    }
    Pass(Pass&&) = default;
    Pass& operator=(Pass&& other) noexcept {
        std::swap(loop_, other.loop_);
        return *this;
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() { end(); }

    [[nodiscard]] bool has_ended() const noexcept { return !loop_; }
    /// The place that this pass has reached; not after end().
    [[nodiscard]] Position& position() noexcept { return *loop_->position; }

    /// Whether it shows how far training is. Then LoopStatus is to know how long it is.
    [[nodiscard]] bool leads() const noexcept { return loop_ && loop_->leads; }

    /// Whoever goes through the data gets the batch.
    void take() noexcept {
        if (loop_) {
            Loops::current().take(*loop_);
        }
    }

    /// The batch was used, and the next is wanted. Throws DataError [RT-D16].
    void leave_batch() {
        if (loop_) {
            if (leads()) {
                LoopStatus::current().advance();
            }
            if (observer()) {
                observer()(*loop_);
            }
            Loops::current().leave_body(*loop_);
            end_if_asked();
        }
    }

    void end() noexcept {
        if (loop_) { // not moved from, and not ended before
            if (leads()) {
                LoopStatus::current().end_loop();
            }
            Loops::current().end(*loop_);
            loop_.reset();
        }
    }

    /// Who is told between the batches of all passes of this thread, and who ends them.
    static void observe(BetweenBatches observe, EndsHere ends_here) {
        observer() = std::move(observe);
        judge() = std::move(ends_here);
    }

private:
    void end_if_asked() {
        if (judge() && judge()(*loop_)) {
            end();
        }
    }

    static BetweenBatches& observer() {
        thread_local BetweenBatches told;
        return told;
    }
    static EndsHere& judge() {
        thread_local EndsHere asked;
        return asked;
    }

    std::unique_ptr<Loops::Loop> loop_;
};

} // namespace rtrain::data
