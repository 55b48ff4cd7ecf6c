// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stop conditions of RunConfig::stop. Rank 0 evaluates them at each report, with its line of
/// result.json, and the run stops when one returns true. A resumed run evaluates them on all
/// reports so far: conditions depend on the reports alone and are not saved in checkpoints. Cost
/// tier 1: std and Boost.JSON.
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
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::stop {

/// Stops at this report, counted from the beginning of the run.
struct MaxIterations {
    std::int64_t count = 0; ///< at least 1
};

/// Stops when the run has trained for this long, over all its starts: `time_total_s`. Also stops
/// between two reports: see docs/stopping.md.
struct MaxTime {
    double seconds = 0; ///< more than 0
};

/// Direction in which a metric reaches a bound.
enum class Direction : unsigned char {
    at_least, ///< at the bound or above
    at_most   ///< at the bound or below
};

/// Stops when a metric reaches a bound. NaN does not.
struct Threshold {
    std::string metric{};                      ///< "a/b" reads a nested one
    double bound = 0;                          ///< value that the metric is compared with
    Direction direction = Direction::at_least; ///< side of `bound` on which the run stops
};

/// Stops when a metric has not improved in `patience` consecutive reports. NaN is not an
/// improvement.
struct EarlyStopping {
    std::string metric{};              ///< "a/b" reads a nested one
    ScoreOrder mode = ScoreOrder::min; ///< whether smaller or larger is better
    int patience = 3;                  ///< reports, at least 1
    double min_delta = 0; ///< least difference from the best value that counts as an improvement
};

/// Stops when the last values of a metric hardly differ: Ray Tune's TrialPlateauStopper.
struct TrialPlateau {
    std::string metric{}; ///< "a/b" reads a nested one
    double std = 0.01;    ///< upper bound on the standard deviation
    int num_results = 4;  ///< number of last values, at least 1
    int grace_period = 4; ///< number of reports before which it does not stop
    /// Does not stop before the metric has reached this value, in the direction of `mode`.
    std::optional<double> metric_threshold{};
    std::optional<ScoreOrder> mode{}; ///< with metric_threshold only
};

/// A custom condition: true stops the run. The same on all ranks for the same report.
using Function = std::function<bool(const boost::json::object& report)>;

/// A custom condition: returns true to stop the run. Its argument is the line of result.json, with
/// the fields that rtrain fills in, except the checkpoint's. A stateful condition starts as a copy
/// of the original at each start of the run and sees all reports again. Called on rank 0.
template <class F>
concept ConditionFunction =
    std::copy_constructible<F> && std::predicate<F&, const boost::json::object&>;

/// One condition.
class Condition {
public:
    /// The kind of condition.
    using Kind =
        std::variant<MaxIterations, MaxTime, Threshold, EarlyStopping, TrialPlateau, Function>;

    /// True if `C` is a condition of rtrain, not a function.
    template <class C>
    static constexpr bool is_shipped =
        std::same_as<C, MaxIterations> || std::same_as<C, MaxTime> || std::same_as<C, Threshold> ||
        std::same_as<C, EarlyStopping> || std::same_as<C, TrialPlateau>;

    template <class C>
    requires is_shipped<C> Condition(C condition) : kind_(std::move(condition)) {} // NOLINT
    // Testing whether a Condition is a function would recursively test this constructor.
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

    void add(Condition condition) { all_.push_back(std::move(condition)); }

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
