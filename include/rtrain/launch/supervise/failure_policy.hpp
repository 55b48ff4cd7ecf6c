// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decides whether and when a failed run restarts, and which checkpoints it must not resume from.
///
/// Pure: no processes, no clock. Called by the driver, or by rank 0 without a driver.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/grouped_errors.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/launch/control/decision.hpp>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::launch {

/// True if other processes commonly send this signal. The system also sends SIGKILL when memory
/// runs out.
[[nodiscard]] constexpr bool is_sent_by_others(int signal) noexcept {
    return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP ||
           signal == SIGQUIT || signal == SIGUSR1 || signal == SIGUSR2;
}

/// Counts the failures of one run, from its first start to its end.
class FailurePolicy {
public:
    /// After so many equal failures from one checkpoint, the run resumes from an older one.
    static constexpr int equal_failures_from_a_checkpoint = 2;
    /// After so many equal failures without progress the run ends, whatever max_failures is.
    static constexpr int equal_failures_in_all = 6;

    explicit FailurePolicy(FailureConfig config) : config_(std::move(config)) {}

    /// A checkpoint with the first `iteration` iterations of the run was committed. It counts as
    /// progress only if the run has never been this far, not if it repeats what a skipped
    /// checkpoint lost.
    void on_progress(const std::string& checkpoint, std::int64_t iteration) {
        newest_ = checkpoint;
        if (iteration > furthest_) {
            furthest_ = iteration;
            failures_in_a_row_ = 0;
            starts_ = 0;
            equal_.clear();
            equal_from_.clear();
        }
    }

    /// Counts a failure and decides what follows. `checkpoint`: name of the newest one at that
    /// time, which the attempt resumed from or committed; empty: none, or the attempt did not get
    /// so far.
    [[nodiscard]] Decision on_failure(const Failure& failure, const std::string& checkpoint = "") {
        if (failure.kind == Failure::Kind::configuration || meets_each_start(failure.code)) {
            return {.skip = skip_, .reason = "a restart cannot help"};
        }
        ++failures_in_a_row_;
        const std::string poison = suspect(failure, checkpoint);
        Decision decision = charge(failure.kind);
        if (decision.restart && is_crash_loop(failure)) {
            decision = {.reason = detail::concat(equal_failures_in_all,
                                                 " equal failures without progress")};
        }
        if (decision.restart && !poison.empty()) {
            decision.reason +=
                detail::concat(", skipping ", poison, ": ", equal_failures_from_a_checkpoint,
                               " equal failures followed it");
        }
        decision.delay_s = decision.restart ? delay_s() : 0;
        decision.skip = skip_;
        return decision;
    }

private:
    /// The part of a message that equal failures share.
    [[nodiscard]] static std::string signature(const Failure& failure) {
        return detail::concat(static_cast<int>(failure.kind), ' ', failure.code.text(), ' ',
                              without_numbers(failure.message));
    }

    /// True if the program itself, or the checkpoint it has loaded, may be the cause.
    [[nodiscard]] static bool blames_the_program(const Failure& failure) {
        using Kind = Failure::Kind;
        return !failure.from_outside && (failure.kind == Kind::threw ||
                                         failure.kind == Kind::died || failure.kind == Kind::hang);
    }

    /// The checkpoint that is skipped from now on because of this failure, or "".
    [[nodiscard]] std::string suspect(const Failure& failure, const std::string& checkpoint) {
        if (!checkpoint.empty()) {
            newest_ = checkpoint;
        }
        if (!blames_the_program(failure)) {
            return "";
        }
        const std::string what = signature(failure);
        ++equal_[what];
        if (newest_.empty() || ++equal_from_[{what, newest_}] < equal_failures_from_a_checkpoint ||
            std::find(skip_.begin(), skip_.end(), newest_) != skip_.end()) {
            return "";
        }
        skip_.push_back(std::exchange(newest_, ""));
        return skip_.back();
    }

    [[nodiscard]] bool is_crash_loop(const Failure& failure) const {
        const auto equal = equal_.find(signature(failure));
        return blames_the_program(failure) && equal->second >= equal_failures_in_all;
    }

    /// Charges a restart to the budget of such failures, if it is not used up.
    [[nodiscard]] Decision charge(Failure::Kind kind) {
        switch (kind) {
        case Failure::Kind::start_up:
            return charge(++starts_, config_.controller_failure_limit, "controller_failure_limit");
        case Failure::Kind::preemption:
            starts_ = 0;
            return charge(++preemptions_, config_.max_preemption_failures,
                          "max_preemption_failures");
        default:
            starts_ = 0;
            return charge(++failures_, config_.max_failures, "max_failures");
        }
    }

    [[nodiscard]] static Decision charge(std::int64_t used, int limit, const char* name) {
        if (limit < 0) {
            return {.restart = true, .reason = detail::concat("restart ", used)};
        }
        if (used <= limit) {
            return {.restart = true, .reason = detail::concat("restart ", used, " of ", limit)};
        }
        return {.reason = detail::concat(name, " = ", limit, limit > 0 ? " is used up" : "")};
    }

    [[nodiscard]] double delay_s() const {
        if (failures_in_a_row_ < 2) {
            return 0;
        }
        const int doublings =
            static_cast<int>(std::min<std::int64_t>(failures_in_a_row_ - 2, 1000));
        return std::min(std::ldexp(config_.backoff_s, doublings), config_.backoff_max_s);
    }

    FailureConfig config_;
    std::int64_t starts_ = 0; ///< consecutive failed starts
    std::int64_t failures_ = 0;
    std::int64_t preemptions_ = 0;
    std::int64_t failures_in_a_row_ = 0; ///< of any kind, since the last progress
    std::int64_t furthest_ = std::numeric_limits<std::int64_t>::min();
    std::string newest_; ///< checkpoint, as far as known
    std::vector<std::string> skip_;
    /// Since the last progress: failures by signature, and by checkpoint.
    std::map<std::string, int> equal_;
    std::map<std::pair<std::string, std::string>, int> equal_from_;
};

} // namespace rtrain::launch
