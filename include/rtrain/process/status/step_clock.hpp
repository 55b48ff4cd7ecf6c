// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where the training time of this process goes: reading data, forward, backward, waiting for other
/// ranks. Code marks the part that it begins; a report takes the sums. Cost tier 0: std only; any
/// room may include it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rtrain {

enum class StepPart : std::uint8_t {
    data,          ///< a loop waits for its next batch
    forward,       ///< from the call of a prepared model; includes the loss
    backward,      ///< without waiting for other ranks
    communication, ///< not hidden by computation: other ranks' gradients, reports
    optimizer,     ///< and everything else
    checkpoint     ///< training waits while a state is saved or copied
};
inline constexpr std::array<std::string_view, 6> step_part_names{
    "data", "forward", "backward", "communication", "optimizer", "checkpoint"};

/// A rank's times and counts between two reports.
struct StepTimes {
    std::array<double, step_part_names.size()> seconds{}; ///< by StepPart
    double steps = 0;                                     ///< backward passes of prepared models
    double rows = 0;                                      ///< in batches of loops with gradients
    double skipped = 0; ///< rows that readers could not read and skipped

    [[nodiscard]] double of(StepPart part) const noexcept {
        return seconds[static_cast<std::size_t>(part)];
    }
    [[nodiscard]] double total() const noexcept {
        double sum = 0;
        for (const double part : seconds) {
            sum += part;
        }
        return sum;
    }
};

/// Each moment belongs to one part, so the parts add up to the elapsed time. For the training
/// thread; backward may run in one of autograd's.
class StepClock {
public:
    /// Time of steady_clock.
    [[nodiscard]] static std::int64_t now_ns() noexcept {
        using std::chrono::nanoseconds;
        return std::chrono::duration_cast<nanoseconds>(
                   std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }

    /// Called on each change of the part, in the thread that makes it.
    class Observer {
    public:
        /// `now_ns`: see now_ns(). `steps`: backward passes that have ended since the start.
        virtual void entered(StepPart part, std::int64_t now_ns, std::int64_t steps) noexcept = 0;

    protected:
        ~Observer() = default;
    };
    /// Sets the observer; null: none.
    void observe(Observer* observer) noexcept { observer_.store(observer); }
    [[nodiscard]] Observer* observer() const noexcept { return observer_.load(); }

    /// Switches to a part; returns the previous one.
    StepPart enter(StepPart next) noexcept {
        const std::int64_t now = now_ns();
        const std::int64_t before = since_.exchange(now, std::memory_order_relaxed);
        const StepPart part = part_.exchange(next, std::memory_order_relaxed);
        sums_[static_cast<std::size_t>(part)].fetch_add(now - before, std::memory_order_relaxed);
        if (Observer* const observer = observer_.load(std::memory_order_acquire)) {
            observer->entered(next, now, steps());
        }
        return part;
    }

    /// The current part.
    [[nodiscard]] StepPart part() const noexcept { return part_.load(std::memory_order_relaxed); }

    /// Backward passes of prepared models that have ended since the start.
    [[nodiscard]] std::int64_t steps() const noexcept {
        return steps_.load(std::memory_order_relaxed);
    }
    void add_step() noexcept { steps_.fetch_add(1, std::memory_order_relaxed); }
    void add_rows(std::int64_t rows) noexcept { rows_.fetch_add(rows, std::memory_order_relaxed); }
    /// Counts floating-point operations from now until the end of a step.
    void begin_flops() noexcept {
        flops_ = 0;
        flops_step_ = steps();
    }
    /// Thread-safe.
    void add_flops(double flops) noexcept { flops_.fetch_add(flops); }
    [[nodiscard]] bool counts_flops() const noexcept { return steps() == flops_step_.load(); }
    [[nodiscard]] double flops() const noexcept { return flops_.load(); }
    /// A reader skips a row; thread-safe.
    void add_skipped() noexcept { skipped_.fetch_add(1, std::memory_order_relaxed); }

    /// Returns the sums since the last call, and resets them.
    [[nodiscard]] StepTimes take() noexcept {
        (void)enter(part_.load(std::memory_order_relaxed));
        StepTimes times;
        for (std::size_t i = 0; i < sums_.size(); ++i) {
            times.seconds[i] = 1e-9 * static_cast<double>(sums_[i].exchange(0));
        }
        const std::int64_t ended = steps();
        times.steps = static_cast<double>(ended - steps_taken_.exchange(ended));
        times.rows = static_cast<double>(rows_.exchange(0));
        times.skipped = static_cast<double>(skipped_.exchange(0));
        return times;
    }

    /// While it exists, time goes to a part.
    class In {
    public:
        In(StepClock& clock, StepPart part) noexcept : clock_(clock), before_(clock.enter(part)) {}
        In(const In&) = delete;
        In& operator=(const In&) = delete;
        ~In() { (void)clock_.enter(before_); }

    private:
        StepClock& clock_;
        StepPart before_;
    };

private:
    std::atomic<StepPart> part_{StepPart::optimizer};
    std::atomic<std::int64_t> since_{now_ns()};
    std::array<std::atomic<std::int64_t>, step_part_names.size()> sums_{};
    std::atomic<std::int64_t> steps_{0}; ///< since the start
    std::atomic<std::int64_t> steps_taken_{0};
    std::atomic<std::int64_t> rows_{0};
    std::atomic<std::int64_t> skipped_{0};
    std::atomic<double> flops_{0};
    std::atomic<std::int64_t> flops_step_{0};
    std::atomic<Observer*> observer_{nullptr};
};

} // namespace rtrain
