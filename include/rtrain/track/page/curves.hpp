// SPDX-License-Identifier: Apache-2.0
/// @file
/// Curves: the numbers of many reports, by metric, in bounded memory.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/base/text/clean_text.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/track/lines/metrics.hpp>
#include <rtrain/track/page/curve.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::track {

class Curves {
public:
    /// Later metrics are omitted.
    static constexpr std::size_t most_curves = 100;

    explicit Curves(std::size_t most_buckets) : most_buckets_(most_buckets) {}

    /// Adds the numbers in `values` whose names satisfy `is_wanted`, at `place`: an iteration or a
    /// step.
    template <class IsWanted>
    void add(std::int64_t place, const Config& values, IsWanted&& is_wanted) {
        std::size_t left_out = 0;
        const auto visit = [&](const std::string& name, const boost::json::value& value) {
            const auto number = json::number(value);
            if (!number) {
                return;
            }
            auto found = places_.find(name);
            if (found == places_.end()) {
                if (curves_.size() == most_curves) {
                    ++left_out;
                    return;
                }
                found = places_.emplace(name, curves_.size()).first;
                curves_.emplace_back(name, Curve(most_buckets_));
            }
            curves_[found->second].second.add({place, *number});
        };
        visit_leaves_if(values, is_wanted, visit);
        left_out_ = std::max(left_out_, left_out);
    }

    /// Names and curves, in the order in which the metrics first appeared.
    [[nodiscard]] const std::vector<std::pair<std::string, Curve>>& all() const noexcept {
        return curves_;
    }
    [[nodiscard]] const Curve* find(const std::string& name) const {
        const auto found = places_.find(name);
        return found == places_.end() ? nullptr : &curves_[found->second].second;
    }
    /// Number of omitted metrics.
    [[nodiscard]] std::size_t left_out() const noexcept { return left_out_; }

private:
    std::size_t most_buckets_;
    std::vector<std::pair<std::string, Curve>> curves_;
    std::unordered_map<std::string, std::size_t> places_;
    std::size_t left_out_ = 0;
};

/// `[{"name": ..., "points": see Curve}, ...]`
[[nodiscard]] inline std::string to_json(const Curves& curves) {
    constexpr std::size_t longest_name = 300;
    std::string text = "[";
    for (const auto& [name, curve] : curves.all()) {
        text += text.size() > 1 ? ",\n" : "\n";
        text += "{\"name\":" +
                json::serialize(boost::json::value(json::clean_text(name, longest_name))) +
                ",\"points\":" + to_json(curve) + "}";
    }
    return text + "]";
}

} // namespace rtrain::track
