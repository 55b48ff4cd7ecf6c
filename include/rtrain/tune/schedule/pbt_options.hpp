// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of Pbt. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/schedule/explore.hpp>
#include <rtrain/tune/schedule/reading.hpp>
#include <rtrain/tune/search/space.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::tune {

/// @code
/// Pbt({.time_attr = "training_iteration", .perturbation_interval = 5,
///      .hyperparam_mutations = {{"lr", loguniform(1e-4, 1e-1)}, {"batch", choice({16, 32, 64})}}})
/// @endcode
struct PbtOptions {
    std::string time_attr = "time_total_s"; ///< any increasing number in the reports
    double perturbation_interval = 60;      ///< in units of `time_attr`, more than 0
    double burn_in_period = 0;              ///< no trial is changed before this time
    /// The hyperparameters to change when a trial takes over another's state. A choice moves to a
    /// neighbor; anything else is multiplied by one of `perturbation_factors`; or the value is
    /// redrawn. Values missing in the search's configurations are drawn.
    Space hyperparam_mutations{};
    double quantile_fraction = 0.25;    ///< of the trials; the worst take over the best; 0 to 0.5
    double resample_probability = 0.25; ///< of a redraw
    std::vector<double> perturbation_factors{1.2, 0.8}; ///< one is drawn each time
    /// Called with the mutated configuration; returns the one to continue with.
    std::function<Config(Config)> custom_explore_fn{};
    bool log_config = true; ///< whether the policy logs are written
    /// True: a report without `time_attr` or the metric is an error [RT-U64]. False: it is skipped.
    bool require_attrs = false;
    /// True: trials wait for each other at each interval, so that none gets ahead.
    bool synch = false;
    std::optional<Goal> goal{}; ///< overrides the search's goal
    std::uint64_t seed = 0;     ///< for random draws

    /// Throws ConfigError [RT-U63], [RT-U66].
    void check(const char* name) const {
        using internal::Reading;
        Reading::expect(perturbation_interval > 0, name, "perturbation_interval must be above 0");
        Reading::expect(burn_in_period >= 0, name, "burn_in_period must be at least 0");
        Reading::expect(quantile_fraction >= 0 && quantile_fraction <= 0.5, name,
                        "quantile_fraction must be 0 to 0.5");
        Reading::expect(resample_probability >= 0 && resample_probability <= 1, name,
                        "resample_probability must be 0 to 1");
        Reading::expect(!perturbation_factors.empty() &&
                            std::all_of(perturbation_factors.begin(), perturbation_factors.end(),
                                        [](double factor) { return std::isfinite(factor); }),
                        name, "perturbation_factors must be finite, and at least one");
        if (hyperparam_mutations.empty() && !custom_explore_fn) {
            throw ConfigError(
                "RT-U66",
                rtrain::detail::concat(
                    name, " has nothing to change; set hyperparam_mutations or custom_explore_fn"));
        }
        internal::require_mutable(hyperparam_mutations);
    }
};

} // namespace rtrain::tune
