// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tracks how a thread's loops over batches nest. A checkpoint saves this: a resumed run starts its
/// training function over and must return to the same batch of each loop. Cost tier 0: std only.
///
/// A loop is around another if the other began in its body, while it had a batch. Loops advanced by
/// hand in alternation are not: each began before the other had a batch. The body of an epoch is
/// the body of worker.epochs().
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/data/order/position.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace rtrain::data {

class LoopStack {
public:
    /// A logical clock; each value is later than all earlier ones.
    using Time = std::int64_t;

    /// A pass in progress.
    struct Loop {
        std::shared_ptr<Position> position;
        bool trains; ///< false: nothing in it can compute gradients, it evaluates
        Time began;
        Time taken = 0;            ///< when the body got its batch; 0: it has none
        bool saved_around = false; ///< a checkpoint recorded it as a loop around another
        bool leads = false;        ///< it determines training progress: the first training loop
        double weight = 1;         ///< of this rank's batch relative to those of all ranks
        std::int64_t used = 0;     ///< batches that the body has finished
    };

    /// The calling thread's loops.
    [[nodiscard]] static LoopStack& current();
    /// The same, for helper threads of the calling thread.
    [[nodiscard]] static const std::shared_ptr<LoopStack>& shared();

    [[nodiscard]] std::unique_ptr<Loop> begin(std::shared_ptr<Position> position, bool trains);

    /// The body receives the batch.
    void take(Loop& loop) noexcept;

    /// The body has finished the batch. Throws DataError [RT-D16].
    void leave_body(Loop& loop);

    void end(const Loop& loop) noexcept;

    /// Records that a training pass is skipped: later checkpoints need it.
    void skip(Position& position) const;

    /// Throws DataError [RT-D16].
    void begin_epoch();
    /// The body has ended; loops that began in it may continue, advanced by hand.
    void end_epoch() noexcept;
    void leave_epochs() noexcept;

    /// The only loop in progress; null if there is none, or more than one.
    [[nodiscard]] const Loop* only() const noexcept;
    /// The loop over a series of batches; null if none is in progress.
    [[nodiscard]] const Loop* over(const Position& position) const noexcept;
    /// The weight of the only training loop that has a batch; 1 if there are none, or several.
    [[nodiscard]] double weight() const noexcept;
    /// True if another loop is running in the body of this one.
    [[nodiscard]] bool is_around_another(const Loop& loop) const noexcept;
    /// True if a loop in the body of the epoch has not ended.
    [[nodiscard]] bool within_epoch() const noexcept;
    /// The finished passes through a series of batches that ended in bodies which a run resumed
    /// from here repeats: bodies in which a loop is in progress.
    [[nodiscard]] std::vector<FinishedPass> finished(const Position& position) const;
    /// Visits every loop whose position a checkpoint made now must save: not those that began
    /// before the epoch.
    template <class Visit>
    void each_in_epoch(Visit&& visit) const {
        for (const Loop* loop : under_way_) {
            if (loop->began > epoch_ && loop->taken != 0) {
                visit(*loop);
            }
        }
    }

    /// Records that a checkpoint was made: the loops that it treats as outer loops must end last.
    void note_saved() noexcept;

private:
    [[nodiscard]] bool is_open(Time body) const noexcept;

    [[nodiscard]] bool begins_again(Time body) const noexcept;

    /// Called when a pass begins. Forgets passes whose body has ended, and those repeated because
    /// an outer loop, still in progress, advances these batches by hand.
    void forget_past(Position& position) const;

    /// Called when leaving a body in which a checkpoint was made.
    void require_closed(bool saved_around, Time body) const;

    std::vector<Loop*> under_way_; ///< in the order in which they began
    Time clock_ = 0;
    Time epoch_ = 0; ///< when the current epoch began; 0: outside of worker.epochs()
    bool epoch_saved_around_ = false;
};

/// A pass through the data, held by an iterator. The epoch ends with end(), at the latest when the
/// iterator is destroyed, for example because the loop exited early.
class Pass {
public:
    /// Called before each batch except the first, when the previous one is finished.
    using BetweenBatches = std::function<void(const LoopStack::Loop&)>;

    /// Called before each batch; returns true to end the loop instead.
    using EndsHere = std::function<bool(const LoopStack::Loop&)>;

    /// A pass that has ended.
    Pass() = default;
    Pass(std::shared_ptr<Position> position, bool trains);
    Pass(Pass&&) = default;
    Pass& operator=(Pass&& other) noexcept;
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass();

    [[nodiscard]] bool has_ended() const noexcept { return !loop_; }
    /// The position that this pass has reached; invalid after end().
    [[nodiscard]] Position& position() noexcept { return *loop_->position; }

    /// True if it determines training progress. LoopStatus then needs its length.
    [[nodiscard]] bool leads() const noexcept { return loop_ && loop_->leads; }

    /// Sets the weight of the next batch: see Steps::weight().
    void weigh(double weight) noexcept { loop_->weight = weight; }

    /// The loop receives the batch.
    void take() noexcept;

    /// The batch is finished and the next one is requested. Throws DataError [RT-D16].
    void leave_batch();

    void end() noexcept;

    /// Run between the batches of all passes of this thread.
    struct Callbacks {
        BetweenBatches between_batches{};
        EndsHere ends_here{};
    };
    /// Sets the callbacks; returns the previous ones.
    static Callbacks observe(Callbacks callbacks);

private:
    void end_if_asked();

    static Callbacks& observers();

    std::unique_ptr<LoopStack::Loop> loop_;
};

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/loops_definitions.hpp>
#endif
