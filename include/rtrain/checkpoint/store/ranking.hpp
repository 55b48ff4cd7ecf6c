// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranking of checkpoints, by the metrics they were reported with.
#pragma once

#include <rtrain/config/config.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace rtrain::checkpoint {

/// Returns the value at `path`, "a/b" for a nested one; null if there is none.
[[nodiscard]] inline const boost::json::value* value_at(const Config& metrics,
                                                        std::string_view path) {
    if (const auto* const direct = metrics.if_contains(path)) {
        return direct;
    }
    for (auto slash = path.find('/'); slash != std::string_view::npos;
         slash = path.find('/', slash + 1)) { // keys may contain slashes themselves
        const auto* const inner = metrics.if_contains(path.substr(0, slash));
        if (inner != nullptr && inner->is_object()) {
            if (const auto* const found = value_at(inner->get_object(), path.substr(slash + 1))) {
                return found;
            }
        }
    }
    return nullptr;
}

/// The metric at `path`; empty if it is missing or not a finite number: a loss that has diverged
/// may be infinite on the side that counts as better.
[[nodiscard]] inline std::optional<double> metric_at(const Config& metrics, std::string_view path) {
    const auto* const found = value_at(metrics, path);
    const double value = found != nullptr && found->is_number()
                             ? found->to_number<double>()
                             : std::numeric_limits<double>::quiet_NaN();
    return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

/// True if `path` has a number, or null, which may stand for NaN.
[[nodiscard]] inline bool has_metric(const Config& metrics, std::string_view path) {
    if (const auto* const direct = metrics.if_contains(path)) {
        return direct->is_number() || direct->is_null();
    }
    for (auto slash = path.find('/'); slash != std::string_view::npos;
         slash = path.find('/', slash + 1)) {
        const auto* const inner = metrics.if_contains(path.substr(0, slash));
        if (inner != nullptr && inner->is_object() &&
            has_metric(inner->get_object(), path.substr(slash + 1))) {
            return true;
        }
    }
    return false;
}

/// Orders better items first: by CheckpointConfig::score_attribute, those without a score last,
/// where detail::is_worse() has NaN; among equals, and without a score attribute, the newer one
/// first. An item has `metrics` and `index`.
template <class Item>
void rank(std::vector<Item>& items, const CheckpointConfig& config) {
    const auto score = [&](const Item& item) {
        const auto value = config.score_attribute ? metric_at(item.metrics, *config.score_attribute)
                                                  : std::nullopt;
        const double sign = config.score_order == ScoreOrder::max ? 1 : -1;
        return value ? sign * *value : -std::numeric_limits<double>::infinity();
    };
    std::sort(items.begin(), items.end(), [&](const Item& a, const Item& b) {
        const double score_a = score(a);
        const double score_b = score(b);
        return score_a != score_b ? score_a > score_b : a.index > b.index;
    });
}

} // namespace rtrain::checkpoint
