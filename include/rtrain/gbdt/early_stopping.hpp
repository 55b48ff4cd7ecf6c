// SPDX-License-Identifier: Apache-2.0
/// @file
/// EarlyStopping: ends a training whose metric no longer improves. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/config/run_info.hpp>
#include <rtrain/gbdt/row_block.hpp>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::gbdt {

/// True for metrics of which larger values are better, such as "valid-auc".
[[nodiscard]] inline bool is_larger_better(std::string_view metric) {
    const std::string_view name = metric.substr(metric.find_last_of('-') + 1);
    constexpr std::array<std::string_view, 7> larger{
        "auc", "aucpr", "map", "ndcg", "pre", "average_precision", "auc_mu"};
    return std::ranges::any_of(larger, [&](std::string_view one) {
        return name == one ||
               (name.starts_with(one) && name.size() > one.size() && name[one.size()] == '@');
    });
}

/// The best value so far, and the round in which it occurred.
class EarlyStopping {
public:
    /// Counts a round; stops after `patience` rounds without a better value.
    void observe(int round, const std::pair<std::string, double>& metric, int patience) {
        const double score = is_larger_better(metric.first) ? -metric.second : metric.second;
        if (!best_ || score < *best_) {
            best_ = score;
            best_round_ = round;
        }
        has_stopped_ = round - best_round_ >= patience;
    }
    [[nodiscard]] bool has_stopped() const noexcept { return has_stopped_; }

    /// For a checkpoint's metadata.
    [[nodiscard]] Config saved() const {
        Config state{{"best_round", best_round_}, {"stopped", has_stopped_}};
        if (best_ && std::isfinite(*best_)) {
            state["best"] = *best_;
        }
        return {{"early_stopping", state}};
    }
    void restore(const boost::json::object& metadata) {
        if (const auto* const found = metadata.if_contains("early_stopping")) {
            const auto& state = found->as_object();
            best_round_ = state.at("best_round").to_number<int>();
            has_stopped_ = state.at("stopped").as_bool();
            if (const auto* const best = state.if_contains("best")) {
                best_ = best->to_number<double>();
            }
        }
    }

private:
    std::optional<double> best_; ///< smaller is better
    int best_round_ = 0;
    bool has_stopped_ = false;
};

} // namespace rtrain::gbdt
