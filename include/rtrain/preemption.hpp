// SPDX-License-Identifier: Apache-2.0
/// @file
/// Preemption: a run is told to make room. Its ranks agree on a step, save there and end, so that
/// the next start loses nothing.
///
/// A notice comes from a signal, from the driver or from FailureConfig::preemption_notice, to one
/// rank or to all, each at another moment. Ranks therefore vote: behind a backward pass whose
/// gradients were averaged, at most a few times a second, and in every report. All learn the
/// outcome at the same place, and save before they take the next batch.
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/data/position.hpp>
#include <rtrain/error.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace rtrain {

/// What `worker.preemption()` returns when the run is to make room.
struct PreemptionInfo {
    /// Time until this run is ended by force, in seconds; may be below 0.
    double seconds_left = 0;
};

/// The run was told to make room, has saved, and goes on when the same command is started again.
class PreemptionError : public Error {
    using Error::Error;
};

/// What a program exits with when its run was preempted (EX_TEMPFAIL of sysexits.h): start it
/// again.
inline constexpr int preempted_exit_code = 75;

/// Whether this process was told to make room, and whether all ranks know.
class PreemptionNotice {
public:
    using Clock = std::chrono::steady_clock;

    /// That of this process.
    [[nodiscard]] static PreemptionNotice& current() noexcept {
        static PreemptionNotice notice;
        return notice;
    }

    /// From any thread, and from a signal handler. The first counts.
    void give(double grace_s) noexcept {
        std::int64_t none = 0;
        const auto end = Clock::now() + std::chrono::duration<double>(grace_s);
        deadline_.compare_exchange_strong(
            none,
            std::chrono::duration_cast<std::chrono::nanoseconds>(end.time_since_epoch()).count());
    }
    [[nodiscard]] bool given() const noexcept { return deadline_.load() != 0; }
    /// Until the deadline; only when given().
    [[nodiscard]] double seconds_left() const noexcept {
        const auto deadline = std::chrono::nanoseconds(deadline_.load());
        return std::chrono::duration<double>(deadline - Clock::now().time_since_epoch()).count();
    }

    /// A new attempt begins.
    void reset() noexcept {
        deadline_ = 0;
        agreed_ = false;
        agreed_in_ = nullptr;
        votes_.reset();
    }

    // Of the training thread.

    /// All ranks know; `pass`: the loop over batches that all of them are in, or null.
    void agree(const data::Position* pass) noexcept {
        agreed_ = true;
        agreed_in_ = pass;
    }
    [[nodiscard]] bool agreed() const noexcept { return agreed_; }
    /// Whether all ranks have agreed in the loop over batches that `pass` is the place of.
    [[nodiscard]] bool agreed_in(const data::Position& pass) const noexcept {
        return agreed_ && agreed_in_ == &pass;
    }

    /// Says when ranks vote: all at the same pass, because each vote decides on the next.
    class Votes {
    public:
        [[nodiscard]] bool is_due() noexcept { return --until_next_ <= 0; }
        [[nodiscard]] std::int64_t step_us() const {
            const auto time = Clock::now() - last_;
            return std::chrono::duration_cast<std::chrono::microseconds>(time).count() / interval_;
        }
        /// `step_us`: the slowest rank's time between two passes.
        void schedule(std::int64_t step_us) {
            constexpr std::int64_t pause_us = 200'000;
            constexpr std::int64_t longest = 10'000;
            interval_ =
                std::clamp<std::int64_t>(pause_us / std::max<std::int64_t>(1, step_us), 1, longest);
            until_next_ = interval_;
            last_ = Clock::now();
        }
        void reset() noexcept { *this = Votes(); }

    private:
        std::int64_t interval_ = 1;
        std::int64_t until_next_ = 1;
        Clock::time_point last_ = Clock::now();
    };
    [[nodiscard]] Votes& votes() noexcept { return votes_; }

private:
    std::atomic<std::int64_t> deadline_{0}; ///< nanoseconds of the steady clock; 0: no notice
    bool agreed_ = false;
    const data::Position* agreed_in_ = nullptr;
    Votes votes_;
};

namespace detail {

/// Thrown out of the training function when the state is saved. No std::exception, because the
/// function's own handlers have nothing to do with it.
struct Preempted {};

/// Behind a backward pass of all ranks: now and then asks whether any was told to make room.
/// *Collective.*
template <Backend B>
void vote_on_preemption(B& backend) {
    PreemptionNotice& notice = PreemptionNotice::current();
    if (!notice.votes().is_due() || notice.agreed()) {
        return;
    }
    at::Tensor vote = at::empty({2}, at::kLong);
    auto* const values = vote.mutable_data_ptr<std::int64_t>();
    values[0] = notice.given() ? 1 : 0;
    values[1] = notice.votes().step_us();
    backend.all_reduce(vote, ReduceOp::max);
    notice.votes().schedule(values[1]);
    if (values[0] != 0) {
        notice.agree(data::Pass::only());
    }
}

} // namespace detail
} // namespace rtrain
