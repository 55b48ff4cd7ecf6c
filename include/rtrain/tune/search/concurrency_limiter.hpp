// SPDX-License-Identifier: Apache-2.0
/// @file
/// ConcurrencyLimiter: wraps another searcher and limits the number of running trials. Guide:
/// docs/tune.md. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/tune/search/searcher.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace rtrain::tune {

/// Returns Wait while `max_concurrent` trials are running. With `batch`, these must all end before
/// the next begins; only then the searcher receives their results, in the order of their ends.
class ConcurrencyLimiter {
public:
    /// Throws ConfigError (RT-U13) if `max_concurrent` is less than 1.
    ConcurrencyLimiter(AnySearcher searcher, std::int64_t max_concurrent, bool batch = false);

    void begin(const Space& space, const Goal& goal, std::int64_t num_samples) {
        searcher_.begin(space, goal, num_samples);
    }
    [[nodiscard]] Suggestion ask(const std::string& trial);
    void on_result(const std::string& trial, std::int64_t iteration, double score) {
        searcher_.on_result(trial, iteration, score);
    }
    void tell(const std::string& trial, std::optional<double> score, TrialEnd end);
    [[nodiscard]] boost::json::object save() const;
    void load(const boost::json::object& state);

private:
    AnySearcher searcher_;
    std::int64_t max_concurrent_;
    bool batch_;
    std::set<std::string> under_way_;
    std::vector<std::tuple<std::string, std::optional<double>, TrialEnd>> ended_; ///< of the batch
};
static_assert(Searcher<ConcurrencyLimiter>);

} // namespace rtrain::tune

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/search/concurrency_limiter_definitions.hpp>
#endif
