// SPDX-License-Identifier: Apache-2.0
/// @file
/// Conditions that end a run: what RunConfig::stop takes. Rank 0 asks them at each report, with its
/// line of result.json, and the run stops when one says so. A run that is taken up asks them about
/// the reports that count so far, so they need no place in checkpoints; whatever a condition says
/// follows from the reports alone. Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/score_order.hpp>

#include <boost/json/object.hpp>

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::stop {

/// Stops at this report, counted from the beginning of the run.
struct MaxIterations {
    std::int64_t count = 0; ///< at least 1
};

/// Stops when the run has trained for so long, all its starts together: `time_total_s`. Between two
/// reports, too: see docs/stopping.md.
struct MaxTime {
    double seconds = 0; ///< more than 0
};

/// On which side of a bound a metric has come far enough.
enum class Direction : unsigned char {
    at_least, ///< at the bound or above
    at_most   ///< at the bound or below
};

/// Stops when a metric has come as far as a bound. NaN has not.
struct Threshold {
    std::string metric{};                      ///< "a/b" reads a nested one
    double bound = 0;                          ///< what the metric is compared with
    Direction direction = Direction::at_least; ///< on which side of `bound` it stops
};

/// Stops when a metric has not improved in so many reports, one after the other. NaN is no
/// improvement.
struct EarlyStopping {
    std::string metric{};              ///< "a/b" reads a nested one
    ScoreOrder mode = ScoreOrder::min; ///< whether less or more is better
    int patience = 3;                  ///< reports, at least 1
    double min_delta = 0; ///< by how much more than the best so far an improvement is better
};

/// Stops when the last values of a metric hardly differ: Ray Tune's TrialPlateauStopper.
struct TrialPlateau {
    std::string metric{}; ///< "a/b" reads a nested one
    double std = 0.01;    ///< their standard deviation must be less
    int num_results = 4;  ///< how many are looked at, at least 1
    int grace_period = 4; ///< reports before which it does not stop
    /// Unless the metric has come as far as this, in the direction of `mode`, it does not stop.
    std::optional<double> metric_threshold{};
    std::optional<ScoreOrder> mode{}; ///< with metric_threshold only
};

/// A condition of one's own: true stops the run. The same on all ranks for the same report.
using Function = std::function<bool(const boost::json::object& report)>;

/// A condition of one's own: true when the run is to stop. It gets the line of result.json, with
/// the fields that rtrain fills in but for the checkpoint's. One with a state begins at each start
/// with a copy of what was given, and is told of all reports again. Called on rank 0.
template <class F>
concept ConditionFunction =
    std::copy_constructible<F> && std::predicate<F&, const boost::json::object&>;

/// One condition.
class Condition {
public:
    /// Which condition it is.
    using Kind =
        std::variant<MaxIterations, MaxTime, Threshold, EarlyStopping, TrialPlateau, Function>;

    /// Whether `T` is a condition of rtrain's, not a function.
    template <class C>
    static constexpr bool is_shipped =
        std::same_as<C, MaxIterations> || std::same_as<C, MaxTime> || std::same_as<C, Threshold> ||
        std::same_as<C, EarlyStopping> || std::same_as<C, TrialPlateau>;

    template <class C>
    requires is_shipped<C> Condition(C condition) : kind_(std::move(condition)) {} // NOLINT
    // Asking for a Condition whether it is a function would ask whether this constructor takes one.
    template <class F>
    requires(!std::same_as<F, Condition> && ConditionFunction<F>) Condition(F function)
        : kind_(Function(std::move(function))) {} // NOLINT
    Condition(const Condition& other);
    Condition(Condition&& other) noexcept;
    Condition& operator=(const Condition& other);
    Condition& operator=(Condition&& other) noexcept;
    ~Condition();

    [[nodiscard]] const Kind& kind() const noexcept { return kind_; }

private:
    Kind kind_;
};

/// None, one or several conditions. Any of them stops the run.
///
/// @code
/// .stop = stop::MaxIterations{10}
/// .stop = {stop::MaxTime{3600}, stop::EarlyStopping{.metric = "loss", .patience = 5}}
/// .stop = [](const rtrain::Config& report) { return report.at("loss").to_number<double>() < 0.1; }
/// @endcode
class Conditions {
public:
    Conditions() = default;
    Conditions(std::initializer_list<Condition> several) : all_(several) {}
    template <class C>
    requires(Condition::is_shipped<C> ||
             (!std::same_as<C, Conditions> && !std::same_as<C, Condition> && ConditionFunction<C>))
        Conditions(C one) // NOLINT
        : all_{Condition(std::move(one))} {}

    [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
    [[nodiscard]] auto begin() const noexcept { return all_.begin(); }
    [[nodiscard]] auto end() const noexcept { return all_.end(); }

private:
    std::vector<Condition> all_;
};

} // namespace rtrain::stop

#ifndef RTRAIN_COMPILED
#include <rtrain/config/stop_definitions.hpp>
#endif
