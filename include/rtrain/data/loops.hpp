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

#include <rtrain/base/compiled.hpp>
#include <rtrain/data/position.hpp>

#include <cstdint>
#include <functional>
#include <memory>
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
        double weight = 1;         ///< of this rank's batch among those of all ranks
        std::int64_t used = 0;     ///< batches that the body is done with
    };

    /// Those of the calling thread.
    [[nodiscard]] static Loops& current();
    /// The same, for other threads that work for this one.
    [[nodiscard]] static const std::shared_ptr<Loops>& shared();

    [[nodiscard]] std::unique_ptr<Loop> begin(std::shared_ptr<Position> position, bool trains);

    /// The body gets the batch.
    void take(Loop& loop) noexcept;

    /// The body is done with the batch. Throws DataError [RT-D16].
    void leave_body(Loop& loop);

    void end(const Loop& loop) noexcept;

    /// A pass that trains is passed over: a checkpoint made behind it must know of it, too.
    void skip(Position& position) const;

    /// Throws DataError [RT-D16].
    void begin_epoch();
    /// The body is over; loops that it has begun may go on, advanced by hand.
    void end_epoch() noexcept;
    void leave_epochs() noexcept;

    /// The one loop that is under way; null when there is none, or more than one.
    [[nodiscard]] const Loop* only() const noexcept;
    /// The loop over a series of batches; null when none is under way.
    [[nodiscard]] const Loop* over(const Position& position) const noexcept;
    /// That of the batch which the only loop that trains has; 1 where none has one, or several.
    [[nodiscard]] double weight() const noexcept;
    /// Whether another loop goes on in the body of this one.
    [[nodiscard]] bool is_around_another(const Loop& loop) const noexcept;
    /// Whether there is a loop in the body of the epoch that is not over.
    [[nodiscard]] bool within_epoch() const noexcept;
    /// The passes over a series of batches that have ended in bodies which a run that goes on from
    /// here begins again: those that a loop is under way in.
    [[nodiscard]] std::vector<FinishedPass> finished(const Position& position) const;
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
    void note_saved() noexcept;

private:
    [[nodiscard]] bool is_open(Time body) const noexcept;

    [[nodiscard]] bool begins_again(Time body) const noexcept;

    /// When a pass begins: forgets those whose body is over, and those that it goes on with because
    /// another loop, which is still under way, advances these batches by hand, again and again.
    void forget_past(Position& position) const;

    /// When a body is left that a checkpoint was made in.
    void require_closed(bool saved_around, Time body) const;

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
    Pass(std::shared_ptr<Position> position, bool trains);
    Pass(Pass&&) = default;
    Pass& operator=(Pass&& other) noexcept;
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass();

    [[nodiscard]] bool has_ended() const noexcept { return !loop_; }
    /// The place that this pass has reached; not after end().
    [[nodiscard]] Position& position() noexcept { return *loop_->position; }

    /// Whether it shows how far training is. Then LoopStatus is to know how long it is.
    [[nodiscard]] bool leads() const noexcept { return loop_ && loop_->leads; }

    /// The next batch counts so much: see Steps::weight().
    void weigh(double weight) noexcept { loop_->weight = weight; }

    /// Whoever goes through the data gets the batch.
    void take() noexcept;

    /// The batch was used, and the next is wanted. Throws DataError [RT-D16].
    void leave_batch();

    void end() noexcept;

    /// Who is told between the batches of all passes of this thread, and who ends them.
    static void observe(BetweenBatches observe, EndsHere ends_here);

private:
    void end_if_asked();

    static BetweenBatches& observer();
    static EndsHere& judge();

    std::unique_ptr<Loops::Loop> loop_;
};

} // namespace rtrain::data

#ifndef RTRAIN_COMPILED
#include <rtrain/data/loops_definitions.hpp>
#endif
