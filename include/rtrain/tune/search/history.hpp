// SPDX-License-Identifier: Apache-2.0
/// @file
/// History: the trials that Tpe learns from, sorted by score and by the value of each parameter.
/// Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/search/parameters.hpp>
#include <rtrain/tune/search/parzen.hpp>

#include <boost/json/array.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace rtrain::tune::internal {

class History {
public:
    History() = default;
    History(const Parameters& parameters, ScoreOrder mode);

    /// Adds a trial that begins; from now on its values are in the densities, among the bad ones.
    void add(const std::string& id, std::vector<double> values);
    void report(const std::string& id, std::int64_t iteration, double score);
    /// A trial without a score, or with NaN, has failed: it remains among the bad ones.
    void end(const std::string& id, std::optional<double> score, TrialEnd end);

    /// The number of trials that have ended and have not failed.
    [[nodiscard]] std::size_t finished() const noexcept {
        return completed_.size() + stopped_.size();
    }
    [[nodiscard]] std::size_t failed() const noexcept { return failed_; }
    [[nodiscard]] std::size_t asked() const noexcept { return trials_.size(); }

    /// Parameters, including `parameter`, that each finished trial has all or none of; only
    /// `parameter` if no finished trial has it. Like Optuna's _GroupDecomposedSearchSpace.
    [[nodiscard]] std::vector<std::size_t> group_of(std::size_t parameter) const;

    /// The trials that have all parameters of `group`: the best ones, and the others.
    struct Split {
        std::vector<Observations> below;
        std::vector<Observations> above;
        std::size_t below_count = 0;
        std::size_t above_count = 0;
    };
    [[nodiscard]] Split split(const std::vector<std::size_t>& group) const;

    [[nodiscard]] boost::json::array save() const;
    void load(const boost::json::array& saved);

private:
    enum class State : unsigned char { running, completed, stopped, failed };
    struct Trial {
        std::string id;
        std::vector<double> values; ///< one per parameter; absent if the trial lacks it
        State state = State::running;
        double score = 0;            ///< negated for "max"; the last report's if it was stopped
        std::int64_t iteration = -1; ///< of the last report
    };
    using Rank =
        std::tuple<std::int64_t, double, std::uint32_t>; ///< 0 or minus reports, score, trial

    [[nodiscard]] std::uint32_t running(const std::string& id) const;
    void settle(std::uint32_t number);
    void refine_groups(const Trial& trial);
    [[nodiscard]] std::vector<char> good() const;

    ScoreOrder mode_ = ScoreOrder::max;
    std::vector<Dimension> dimensions_; ///< of each parameter
    std::vector<Trial> trials_;         ///< in the order of add()
    std::unordered_map<std::string, std::uint32_t> numbers_;
    std::vector<std::vector<double>>
        columns_; ///< per parameter, by trial: in the kernels' representation
    std::vector<std::vector<std::uint32_t>> orders_; ///< per parameter: trials sorted by value
    std::vector<Rank> completed_;                    ///< sorted, the best first
    std::vector<Rank> stopped_;
    std::size_t failed_ = 0;
    std::vector<std::uint32_t> groups_; ///< per parameter; 0: in no finished trial
    bool whole_ = false;                ///< all parameters are, and always were, in one group
};

} // namespace rtrain::tune::internal

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/search/history_definitions.hpp>
#endif
