// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tpe: the tree-structured Parzen estimator. Guide: docs/tune.md. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/tune/search/history.hpp>
#include <rtrain/tune/search/plan.hpp>
#include <rtrain/tune/search/searcher.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::tune {

/// Options of Tpe.
struct TpeOptions {
    /// Trials that end, failed ones included, before Tpe learns from them; until then it draws at
    /// random.
    std::int64_t startup_trials = 10;
    /// Number of points drawn from the density of the good trials, of which the best is taken.
    std::int64_t candidates = 24;
    /// Configurations to start with. Missing values are drawn.
    std::vector<Config> points_to_evaluate{};
    std::uint64_t seed = 0; ///< for random draws
};

/// Suggests what is likely among the good trials and unlikely among the others, as Optuna 5.0.0's
/// TPESampler with `group=True` does, and by default where a space has no conditions. Densities are
/// joint over all parameters. The best tenth of the trials, at most 25, are good. Running trials
/// count among the others ("constant liar"), so that several can run concurrently, as do failed
/// trials and those with score NaN, which Optuna ignores. The earlier a trial was stopped, the
/// worse it counts. Parameters within the options of a choice have separate densities. A randn is
/// searched by its quantile; values of sample_from() are not learned from. A suggestion after n
/// trials takes O(n) time.
///
/// Bergstra et al. (2011), Watanabe (2023, arXiv:2304.11127).
class Tpe {
public:
    explicit Tpe(TpeOptions options = {}) : options_(std::move(options)) {}

    /// Throws ConfigError: RT-U6 for a grid_search, RT-U7 without a metric, RT-U8, RT-U10.
    void begin(const Space& space, const Goal& goal, std::int64_t num_samples);
    [[nodiscard]] Suggestion ask(const std::string& trial);
    void on_result(const std::string& trial, std::int64_t iteration, double score) {
        history_.report(trial, iteration, score);
    }
    /// Throws ConfigError: RT-U11 for a trial that is not running.
    void tell(const std::string& trial, std::optional<double> score, TrialEnd end) {
        history_.end(trial, score, end);
    }
    [[nodiscard]] boost::json::object save() const;
    void load(const boost::json::object& state);

private:
    [[nodiscard]] std::vector<double> suggest();
    void suggest_group(const std::vector<std::size_t>& group, std::vector<double>& values);

    TpeOptions options_;
    ScoreOrder mode_ = ScoreOrder::max;
    internal::Plan plan_;
    internal::History history_;
};
static_assert(Searcher<Tpe> && internal::HasOnResult<Tpe>);

} // namespace rtrain::tune

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/search/tpe_definitions.hpp>
#endif
