// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door bohb.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/tune/search/bohb.hpp>
#include <rtrain/tune/search/normal.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace rtrain::tune {

RTRAIN_DOOR void Bohb::begin(const Space& space, const Goal& goal, std::int64_t num_samples) {
    if (options_.samples < 1 || options_.top_percent < 1 || options_.top_percent > 99) {
        throw ConfigError("RT-U13", detail::concat("BohbOptions: samples ", options_.samples,
                                                   ", top_percent ", options_.top_percent,
                                                   "; expected at least 1, and 1 to 99"));
    }
    plan_ = internal::Plan(space, num_samples, options_.points_to_evaluate, options_.seed);
    plan_.check_learns("Bohb", goal);
    mode_ = goal.mode;
    modelled_.clear();
    dimensions_.clear();
    trials_.clear();
    numbers_.clear();
    budgets_.clear();
    for (std::size_t p = 0; p < plan_.parameters().size(); ++p) {
        const Domain& domain = plan_.parameters()[p].domain;
        if (internal::count_of(domain) != std::optional<std::size_t>(1)) {
            modelled_.push_back(p);
            dimensions_.push_back(internal::dimension_of(domain));
        }
    }
}

RTRAIN_DOOR Suggestion Bohb::ask(const std::string& trial) {
    if (plan_.exhausted()) {
        return Exhausted{};
    }
    if (!numbers_.emplace(trial, static_cast<std::uint32_t>(trials_.size())).second) {
        throw ConfigError("RT-U11", detail::concat("ask() was called twice for trial \"", trial,
                                                   "\"; use a unique id for each trial"));
    }
    Row values = plan_.next().value_or(Row());
    if (values.empty()) {
        values = suggest().value_or(Row(plan_.parameters().size(), internal::absent));
    }
    plan_.complete(values);
    Config config = plan_.parameters().config(values, plan_.random());
    trials_.push_back({trial, std::move(values)});
    return config;
}

RTRAIN_DOOR std::uint32_t Bohb::under_way(const std::string& trial) const {
    const auto found = numbers_.find(trial);
    if (found == numbers_.end() || trials_[found->second].ended) {
        throw ConfigError(
            "RT-U11",
            detail::concat(
                "the searcher got a result for trial \"", trial,
                "\", which is not running; call ask() first, and end each trial only once"));
    }
    return found->second;
}

/// Smaller is better; a value that is not finite is the worst.
RTRAIN_DOOR void Bohb::add_loss(std::int64_t budget, std::uint32_t trial,
                                std::optional<double> score) {
    constexpr double worst = std::numeric_limits<double>::infinity();
    const double loss = !score || !std::isfinite(*score) ? worst
                        : mode_ == ScoreOrder::max       ? -*score
                                                         : *score;
    const std::pair<double, std::uint32_t> entry(loss, trial);
    Losses& losses = budgets_[budget];
    losses.insert(std::upper_bound(losses.begin(), losses.end(), entry), entry);
}

RTRAIN_DOOR void Bohb::on_result(const std::string& trial, std::int64_t iteration, double score) {
    const std::uint32_t number = under_way(trial);
    trials_[number].iteration = iteration;
    add_loss(iteration, number, score);
}

RTRAIN_DOOR void Bohb::tell(const std::string& trial, std::optional<double> score, TrialEnd end) {
    const std::uint32_t number = under_way(trial);
    Trial& ended = trials_[number];
    ended.ended = true;
    ended.failed = end == TrialEnd::errored || (score && std::isnan(*score));
    if (ended.failed) { // whatever its earlier reports were
        for (auto& [budget, losses] : budgets_) {
            std::erase_if(losses, [&](const auto& loss) { return loss.second == number; });
        }
    } else if (ended.iteration == 0 && score) {
        add_loss(1, number, score);
    }
}

/// The trials of the largest budget that has enough of them, best first, then the failed ones;
/// empty if no budget has.
RTRAIN_DOOR Bohb::Losses Bohb::model_of() const {
    Losses failed;
    for (std::uint32_t number = 0; number < trials_.size(); ++number) {
        if (trials_[number].failed) {
            failed.emplace_back(std::numeric_limits<double>::infinity(), number);
        }
    }
    const std::size_t least = modelled_.size() + 1;
    for (auto budget = budgets_.rbegin(); budget != budgets_.rend(); ++budget) {
        const std::size_t count = budget->second.size() + failed.size();
        const std::size_t good =
            std::max(least, static_cast<std::size_t>(options_.top_percent) * count / 100);
        if (count >= good + least && budget->second.size() >= good) {
            Losses losses = budget->second;
            losses.insert(losses.end(), failed.begin(), failed.end());
            return losses;
        }
    }
    return {};
}

RTRAIN_DOOR Bohb::Row Bohb::unit(const Row& values) const {
    Row row;
    for (std::size_t d = 0; d < modelled_.size(); ++d) {
        const internal::Dimension& dimension = dimensions_[d];
        const double value = values[modelled_[d]];
        row.push_back(dimension.options > 0 ? value
                                            : (dimension.inner(value) - dimension.low) /
                                                  (dimension.high - dimension.low));
    }
    return row;
}

/// Leaves out values of options that the row has not chosen.
RTRAIN_DOOR Bohb::Row Bohb::from_unit(const Row& row) {
    Row values(plan_.parameters().size(), internal::absent);
    for (std::size_t p = 0, d = 0; p < values.size(); ++p) {
        const bool is_modelled = d < modelled_.size() && modelled_[d] == p;
        if (plan_.parameters().active(p, values)) {
            if (!is_modelled) {
                values[p] = internal::draw(plan_.parameters()[p].domain, plan_.random());
            } else if (const internal::Dimension& dimension = dimensions_[d];
                       dimension.options > 0) {
                values[p] = row[d];
            } else {
                const double x = dimension.low + row[d] * (dimension.high - dimension.low);
                values[p] = internal::nearest(dimension.range, dimension.outer(x));
            }
        }
        d += is_modelled ? 1 : 0;
    }
    return values;
}

/// Fills missing values of each row from another row that has them.
RTRAIN_DOOR void Bohb::impute(std::vector<Row>& rows) {
    const std::vector<Row> known = rows;
    for (Row& row : rows) {
        for (std::size_t d = 0; d < row.size(); ++d) {
            if (!std::isnan(row[d])) {
                continue;
            }
            std::vector<std::size_t> donors;
            for (std::size_t i = 0; i < known.size(); ++i) {
                if (!std::isnan(known[i][d])) {
                    donors.push_back(i);
                }
            }
            if (donors.empty()) {
                row[d] = dimensions_[d].options > 0
                             ? static_cast<double>(plan_.random().below(dimensions_[d].options))
                             : plan_.random().uniform();
                continue;
            }
            const Row& donor = known[donors[plan_.random().below(donors.size())]];
            for (std::size_t other = d; other < row.size(); ++other) {
                row[other] = std::isnan(row[other]) ? donor[other] : row[other];
            }
        }
    }
}

/// Bandwidths follow Scott's normal reference rule, like those of statsmodels.
RTRAIN_DOOR Bohb::Density Bohb::density(const Losses& losses, std::size_t from, std::size_t to) {
    Density density;
    for (std::size_t i = from; i < to; ++i) {
        density.rows.push_back(unit(trials_[losses[i].second].values));
    }
    impute(density.rows);
    const auto count = static_cast<double>(density.rows.size());
    const double factor =
        1.06 * std::pow(count, -1.0 / (4.0 + static_cast<double>(modelled_.size())));
    for (std::size_t d = 0; d < modelled_.size(); ++d) {
        double mean = 0;
        for (const Row& row : density.rows) {
            mean += row[d] / count;
        }
        double variance = 0;
        for (const Row& row : density.rows) {
            variance += (row[d] - mean) * (row[d] - mean) / count;
        }
        double bandwidth = std::max(factor * std::sqrt(variance), options_.least_bandwidth);
        if (dimensions_[d].options >
            0) { // a larger one would make other options likelier than its own
            const auto options = static_cast<double>(dimensions_[d].options);
            bandwidth = std::min(bandwidth, (options - 1) / options);
        }
        density.bandwidths.push_back(bandwidth);
    }
    return density;
}

RTRAIN_DOOR Bohb::Row Bohb::draw_near(const Density& good) {
    Random& random = plan_.random();
    const Row& center = good.rows[random.below(good.rows.size())];
    Row row;
    for (std::size_t d = 0; d < center.size(); ++d) {
        const double bandwidth = good.bandwidths[d];
        if (dimensions_[d].options > 0) {
            row.push_back(random.uniform() < 1 - bandwidth
                              ? center[d]
                              : static_cast<double>(random.below(dimensions_[d].options)));
            continue;
        }
        const double width = options_.bandwidth_factor * bandwidth;
        const double below = internal::normal_mass(-center[d] / width);
        const double above = internal::normal_mass((center[d] - 1) / width);
        const double part = random.quantile();
        const double mass = 1 - below - above;
        const double p = below + part * mass;
        const double z = p < 0.5 ? internal::normal_quantile(p)
                                 : -internal::normal_quantile(above + (1 - part) * mass);
        row.push_back(std::clamp(center[d] + z * width, 0.0, 1.0));
    }
    return row;
}

/// A product of Gaussian kernels, and of Aitchison and Aitken's for choices.
RTRAIN_DOOR double Bohb::pdf(const Density& density, const Row& row) const {
    auto scale = static_cast<double>(density.rows.size());
    for (std::size_t d = 0; d < row.size(); ++d) {
        scale *= dimensions_[d].options > 0
                     ? 1.0
                     : density.bandwidths[d] * std::exp(internal::log_sqrt_2pi);
    }
    double sum = 0;
    for (const Row& center : density.rows) {
        double exponent = 0;
        double factor = 1;
        for (std::size_t d = 0; d < row.size(); ++d) {
            const double bandwidth = density.bandwidths[d];
            if (dimensions_[d].options == 0) {
                const double z = (row[d] - center[d]) / bandwidth;
                exponent -= z * z / 2;
            } else {
                factor *= row[d] == center[d]
                              ? 1 - bandwidth
                              : bandwidth / static_cast<double>(dimensions_[d].options - 1);
            }
        }
        sum += factor * std::exp(exponent);
    }
    return sum / scale;
}

RTRAIN_DOOR std::optional<Bohb::Row> Bohb::suggest() {
    const Losses losses = model_of();
    if (losses.empty() || modelled_.empty() ||
        plan_.random().uniform() < options_.random_fraction) {
        return std::nullopt;
    }
    const std::size_t least = modelled_.size() + 1;
    const std::size_t count = losses.size();
    const auto percent = static_cast<std::size_t>(options_.top_percent);
    const std::size_t good = std::max(least, percent * count / 100);
    const std::size_t bad = std::max(least, (100 - percent) * count / 100);
    const Density likely = density(losses, 0, good);
    const Density unlikely = density(losses, good, std::min(good + bad, count));
    constexpr double floor = 1e-32;
    Row best;
    double least_ratio = std::numeric_limits<double>::infinity();
    for (std::int64_t i = 0; i < options_.samples; ++i) {
        Row row = draw_near(likely);
        const double ratio =
            std::max(pdf(unlikely, row), floor) / std::max(pdf(likely, row), floor);
        if (ratio < least_ratio) {
            least_ratio = ratio;
            best = std::move(row);
        }
    }
    if (best.empty()) {
        return std::nullopt;
    }
    return from_unit(best);
}

RTRAIN_DOOR boost::json::object Bohb::save() const {
    boost::json::object state = plan_.save();
    boost::json::array trials;
    for (const Trial& trial : trials_) {
        trials.push_back(json::finite(boost::json::array{
            trial.id, boost::json::array(trial.values.begin(), trial.values.end()), trial.iteration,
            trial.ended, trial.failed}));
    }
    boost::json::array budgets;
    for (const auto& [budget, losses] : budgets_) {
        boost::json::array entries;
        for (const auto& [loss, trial] : losses) {
            entries.push_back(json::finite(boost::json::array{loss, trial}));
        }
        budgets.push_back(boost::json::array{budget, std::move(entries)});
    }
    state["trials"] = std::move(trials);
    state["budgets"] = std::move(budgets);
    return state;
}

RTRAIN_DOOR void Bohb::load(const boost::json::object& state) {
    internal::read_state([&] {
        plan_.load(state);
        trials_.clear();
        numbers_.clear();
        budgets_.clear();
        for (const boost::json::value& each : state.at("trials").as_array()) {
            const boost::json::array& fields = each.as_array();
            Trial trial;
            trial.id = std::string(fields.at(0).as_string());
            for (const boost::json::value& value : fields.at(1).as_array()) {
                trial.values.push_back(json::number(value).value());
            }
            trial.iteration = fields.at(2).as_int64();
            trial.ended = fields.at(3).as_bool();
            trial.failed = fields.size() > 4 && fields.at(4).as_bool(); // rtrain 0.1 had 4 fields
            numbers_[trial.id] = static_cast<std::uint32_t>(trials_.size());
            trials_.push_back(std::move(trial));
        }
        for (const boost::json::value& each : state.at("budgets").as_array()) {
            Losses& losses = budgets_[each.as_array().at(0).as_int64()];
            for (const boost::json::value& entry : each.as_array().at(1).as_array()) {
                losses.emplace_back(json::number(entry.as_array().at(0)).value(),
                                    entry.as_array().at(1).to_number<std::uint32_t>());
            }
        }
    });
}

} // namespace rtrain::tune
