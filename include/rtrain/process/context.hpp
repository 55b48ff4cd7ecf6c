// SPDX-License-Identifier: Apache-2.0
/// @file
/// ProcessContext: the state of a process that trains. A fit() call takes it at its start and
/// passes it on; code without a path from there, such as a wait in a collective or a torch data
/// loader, uses current(). Cost tier 0: std only.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/process/preemption/preemption_notice.hpp>
#include <rtrain/process/preemption/time_limit.hpp>
#include <rtrain/process/status/attempt_status.hpp>
#include <rtrain/process/status/loop_status.hpp>
#include <rtrain/process/status/rank_status.hpp>
#include <rtrain/process/status/reading.hpp>
#include <rtrain/process/status/step_clock.hpp>
#include <rtrain/process/status/warned.hpp>

#include <atomic>

namespace rtrain {

class ProcessContext {
public:
    /// Replaces the current context while it exists, for a training that is independent of one
    /// around it. Threads that use it must end before it.
    ProcessContext() noexcept
        : outer_(innermost.exchange(this)), outer_log_(&console::use_settings(log_)) {}
    ProcessContext(const ProcessContext&) = delete;
    ProcessContext& operator=(const ProcessContext&) = delete;
    ~ProcessContext() {
        console::use_settings(*outer_log_);
        innermost.store(outer_);
    }

    /// The innermost one, or the program's, which the first call makes. Lock-free from then on, for
    /// signal handlers.
    [[nodiscard]] static ProcessContext& current() noexcept {
        ProcessContext* const context = innermost.load();
        return context != nullptr ? *context : of_program();
    }

    RankStatus status;
    LoopStatus loop;
    StepClock clock;
    AttemptStatus attempt;
    TimeLimit time_limit;
    PreemptionNotice notice;
    Readings readings;
    Warned warned;
    std::atomic<bool> fits{false}; ///< during a fit() call: see FitGuard

private:
    static inline std::atomic<ProcessContext*> innermost{nullptr};
    static_assert(std::atomic<ProcessContext*>::is_always_lock_free);

    struct OfProgram {};
    explicit ProcessContext(OfProgram /*tag*/) noexcept {}
    /// Never destroyed: threads may use it until the process ends.
    [[nodiscard]] static ProcessContext& of_program() noexcept {
        static auto* const context = new ProcessContext(OfProgram{});
        return *context;
    }

    ProcessContext* outer_ = nullptr;
    console::LogSettings log_; ///< console::settings(); the program's are in base/console.hpp
    console::LogSettings* outer_log_ = nullptr;
};

} // namespace rtrain
