// SPDX-License-Identifier: Apache-2.0
/// @file
/// What this rank does, for hang detection: written by the training thread, read by the thread that
/// reports to the driver (launch/control/driver_link.hpp). A write is one store, so it costs
/// nothing per batch. Cost tier 0: std only; any room may include it.
#pragma once

#include <rtrain/base/name_table.hpp>

#include <atomic>
#include <cstdint>

namespace rtrain {

/// A rank's phase in a run.
enum class Phase : std::uint8_t {
    starting,  ///< joining the others, resuming the run
    training,  ///< in the training function
    saving,    ///< in report(): writing a checkpoint
    waiting,   ///< for a call of main()
    finishing, ///< the training function has ended
    done       ///< this rank sends no more events
};

inline constexpr auto phase_names = detail::name_table<Phase>({{Phase::starting, "starting"},
                                                               {Phase::training, "training"},
                                                               {Phase::saving, "saving"},
                                                               {Phase::waiting, "waiting"},
                                                               {Phase::finishing, "finishing"},
                                                               {Phase::done, "done"}});

struct RankStatus {
    std::atomic<Phase> phase{Phase::starting};
    /// Counts signs of progress: batches, backward passes, reports, bytes of a checkpoint.
    std::atomic<std::uint64_t> progress{0};
    /// Steps: backward passes whose gradients were averaged.
    std::atomic<std::uint64_t> steps{0};
    /// Collectives that this rank has waited in.
    std::atomic<std::uint64_t> collectives{0};
    /// The collective in which it waits for other ranks, a string literal such as "all_reduce";
    /// otherwise null.
    std::atomic<const char*> waiting_in{nullptr};
    /// Set by hang detection: the ranks hang and are about to be killed one by one, so deaths are
    /// no longer reported.
    std::atomic<bool> condemned{false};

    void enter(Phase next) noexcept {
        phase.store(next, std::memory_order_relaxed);
        advance();
    }
    void advance() noexcept { progress.fetch_add(1, std::memory_order_relaxed); }

    /// While it exists, this process is in a phase.
    class In {
    public:
        In(RankStatus& status, Phase phase) noexcept
            : status_(status), before_(status.phase.load()) {
            status_.enter(phase);
        }
        In(const In&) = delete;
        In& operator=(const In&) = delete;
        ~In() { status_.enter(before_); }

    private:
        RankStatus& status_;
        Phase before_;
    };

    /// While it exists, this rank waits for others.
    class Waiting {
    public:
        Waiting(RankStatus& status, const char* what) noexcept
            : status_(status), outer_(status.waiting_in.load(std::memory_order_relaxed)) {
            status_.waiting_in.store(what, std::memory_order_relaxed);
            status_.collectives.fetch_add(1, std::memory_order_relaxed);
        }
        Waiting(const Waiting&) = delete;
        Waiting& operator=(const Waiting&) = delete;
        ~Waiting() { status_.waiting_in.store(outer_, std::memory_order_relaxed); }

    private:
        RankStatus& status_;
        const char* outer_;
    };
};

} // namespace rtrain
