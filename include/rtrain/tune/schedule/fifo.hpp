// SPDX-License-Identifier: Apache-2.0
/// @file
/// Fifo: runs trials in the order in which they were created, each to its end. Cost tier 1: std and
/// Boost.JSON.
#pragma once

#include <rtrain/tune/schedule/scheduler.hpp>

#include <optional>
#include <span>
#include <string>

namespace rtrain::tune {

namespace internal {

/// The first one that has not run yet, else the first paused one.
[[nodiscard]] inline std::optional<std::string> first_of(std::span<const Candidate> waiting) {
    for (const Candidate& candidate : waiting) {
        if (!candidate.paused) {
            return candidate.trial;
        }
    }
    return waiting.empty() ? std::nullopt : std::optional(waiting.front().trial);
}

} // namespace internal

/// Needs no goal.
class Fifo {
public:
    void begin(const Goal& /*goal*/) {}
    [[nodiscard]] Config add(const std::string& /*trial*/, Config config) { return config; }
    [[nodiscard]] Verdict on_result(const TrialReport& /*report*/) { return GoOn{}; }
    void on_end(const std::string& /*trial*/, TrialEnd /*end*/,
                const std::optional<TrialReport>& /*last*/) {}
    [[nodiscard]] std::optional<std::string> next(std::span<const Candidate> waiting) {
        return internal::first_of(waiting);
    }
    [[nodiscard]] boost::json::object save() const { return {}; }
    void load(const boost::json::object& /*state*/) {}
};
static_assert(Scheduler<Fifo>);

} // namespace rtrain::tune
