// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bohb: kernel densities for each budget, for use with HyperBand. Guide: docs/tune.md.
/// Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/tune/search/parzen.hpp>
#include <rtrain/tune/search/plan.hpp>
#include <rtrain/tune/search/searcher.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune {

/// Options of Bohb.
struct BohbOptions {
    double random_fraction = 1.0 / 3; ///< share of suggestions drawn at random
    std::int64_t top_percent = 15;    ///< percentage of a budget's trials that count as good
    std::int64_t samples = 64;        ///< points drawn for a suggestion, of which the best is taken
    double bandwidth_factor = 3;      ///< widens the kernels to draw from them
    double least_bandwidth = 1e-3;    ///< for values between 0 and 1
    /// Configurations to start with. Missing values are drawn.
    std::vector<Config> points_to_evaluate{};
    std::uint64_t seed = 0; ///< for random draws
};

/// Suggests what is likely among the good trials and unlikely among the others, as HpBandSter 0.7.4
/// does. A budget is a number of reports; a trial's score for a budget is that of its report of
/// this number. The densities are those of the largest budget with d + 1 good and d + 1 other
/// trials, for d parameters; until there is one, suggestions are random. Failed trials and NaN
/// count as the worst.
///
/// Falkner, Klein, Hutter (2018). The kernels of a choice cover all of its options, where
/// HpBandSter counts only those seen.
class Bohb {
public:
    explicit Bohb(BohbOptions options = {}) : options_(std::move(options)) {}

    /// Throws ConfigError: RT-U6 for a grid_search, RT-U7 without a metric, RT-U8, RT-U10, RT-U13.
    void begin(const Space& space, const Goal& goal, std::int64_t num_samples);
    [[nodiscard]] Suggestion ask(const std::string& trial);
    void on_result(const std::string& trial, std::int64_t iteration, double score);
    /// Throws ConfigError: RT-U11 for a trial that is not running.
    void tell(const std::string& trial, std::optional<double> score, TrialEnd end);
    [[nodiscard]] boost::json::object save() const;
    void load(const boost::json::object& state);

private:
    using Row = std::vector<double>; ///< in the unit cube; for a choice, the index
    struct Trial {
        std::string id;
        Row values;                 ///< as in a Plan
        std::int64_t iteration = 0; ///< of the last report
        bool ended = false;
        bool failed = false; ///< counts as the worst of every budget
    };
    using Losses = std::vector<std::pair<double, std::uint32_t>>; ///< loss and trial
    struct Density {
        std::vector<Row> rows;
        std::vector<double> bandwidths;
    };

    [[nodiscard]] std::uint32_t under_way(const std::string& trial) const;
    void add_loss(std::int64_t budget, std::uint32_t trial, std::optional<double> score);
    [[nodiscard]] Losses model_of() const;
    [[nodiscard]] Row unit(const Row& values) const;
    [[nodiscard]] Row from_unit(const Row& row);
    [[nodiscard]] Density density(const Losses& losses, std::size_t from, std::size_t to);
    void impute(std::vector<Row>& rows);
    [[nodiscard]] Row draw_near(const Density& good);
    [[nodiscard]] double pdf(const Density& density, const Row& row) const;
    [[nodiscard]] std::optional<Row> suggest();

    BohbOptions options_;
    ScoreOrder mode_ = ScoreOrder::max;
    internal::Plan plan_;
    std::vector<std::size_t> modelled_; ///< parameters with more than one value
    std::vector<internal::Dimension> dimensions_;
    std::vector<Trial> trials_;
    std::map<std::string, std::uint32_t> numbers_;
    std::map<std::int64_t, Losses> budgets_;
};
static_assert(Searcher<Bohb> && internal::HasOnResult<Bohb>);

} // namespace rtrain::tune

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/search/bohb_definitions.hpp>
#endif
