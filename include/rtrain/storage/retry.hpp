// SPDX-License-Identifier: Apache-2.0
/// @file
/// Retries actions that fail transiently.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/text/duration.hpp>
#include <rtrain/storage/transfer_config.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::storage {

using Clock = std::chrono::steady_clock;

/// Seconds to pause after `failures` consecutive failures. Random, so that many ranks hit by one
/// overload do not all return at the same time.
[[nodiscard]] inline double pause_s(const TransferConfig& config, int failures) {
    thread_local std::minstd_rand random(std::random_device{}());
    const double longest =
        std::min(config.max_backoff_s, std::ldexp(config.first_backoff_s, failures - 1));
    return longest * std::uniform_real_distribution<double>(0.5, 1.0)(random);
}

/// Returns `config.deadline_s` from now.
[[nodiscard]] inline Clock::time_point deadline_of(const TransferConfig& config) {
    return Clock::now() + detail::duration_of(config.deadline_s);
}

namespace internal {

[[nodiscard]] inline TransientStorageError deadline_error(const TransferConfig& config,
                                                          std::string_view what, int attempts,
                                                          const std::string& last_error) {
    return {"RT-S12",
            detail::concat(what, " did not finish within deadline_s = ", config.deadline_s,
                           " s, in attempt ", std::max(attempts, 1), " of ", config.attempts, "; ",
                           last_error.empty()
                               ? "no error was reported, so the service is slow or not responding"
                               : "the last error: " + last_error,
                           "; raise deadline_s or use smaller files")};
}

/// Returns early if a stop is requested.
inline void pause(double seconds, const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock(mutex);
    stopped.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
}

/// State of repeated attempts; read by a waiting thread.
struct Attempts {
    std::mutex mutex;
    int count = 0;
    std::string last_error;
};

struct RetryLimits {
    const TransferConfig& config;
    Clock::time_point deadline;
    std::stop_token stop{};
};

template <class Action>
decltype(auto) try_until(const RetryLimits& limits, const std::string& what, Attempts& attempts,
                         Action&& action) {
    const auto& [config, deadline, stop] = limits;
    const auto start = Clock::now();
    for (int attempt = 1;; ++attempt) {
        {
            const std::scoped_lock lock(attempts.mutex);
            attempts.count = attempt;
        }
        try {
            return action();
        } catch (const TransientStorageError& error) {
            const std::scoped_lock lock(attempts.mutex);
            attempts.last_error = error.message();
        }
        const double wait_s = pause_s(config, attempt);
        if (attempt >= config.attempts) {
            const std::chrono::duration<double> passed = Clock::now() - start;
            throw TransientStorageError(
                "RT-S11",
                detail::concat(what, " failed ", attempt, " times within ", passed.count(),
                               " s; the last error: ", attempts.last_error));
        }
        if (stop.stop_requested() ||
            Clock::now() + std::chrono::duration<double>(wait_s) >= deadline) {
            throw deadline_error(config, what, attempt, attempts.last_error);
        }
        pause(wait_s, stop);
    }
}

} // namespace internal

/// Calls `action` until it does not throw TransientStorageError, at most `config.attempts` times,
/// and returns its result. Lets other exceptions through. Starts no attempt after
/// `config.deadline_s`. Throws TransientStorageError [RT-S11] after the last attempt, [RT-S12] at
/// the deadline. `what`: used in messages, for example "reading s3://bucket/run/result.json".
template <class Action>
decltype(auto) with_retries(const TransferConfig& config, const std::string& what,
                            Action&& action) {
    internal::Attempts attempts;
    return internal::try_until({config, deadline_of(config)}, what, attempts,
                               std::forward<Action>(action));
}

} // namespace rtrain::storage
