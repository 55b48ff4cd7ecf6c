// SPDX-License-Identifier: Apache-2.0
/// @file
/// ScoreCheck: tells once when checkpoints are to be ranked by a metric that no report has.
#pragma once

#include <rtrain/checkpoint/ranking.hpp>
#include <rtrain/checkpoint/store.hpp>
#include <rtrain/config/config.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

namespace rtrain {

class ScoreCheck {
public:
    explicit ScoreCheck(const CheckpointConfig& config) : attribute_(config.score_attribute) {}

    /// Before the first checkpoint of this start, reported with `metrics`, which make the `line` of
    /// the log, beside those that there are. What `is_validated` may get the metric later.
    void look_at(const Config& metrics, const Config& line, bool is_validated,
                 const checkpoint::Listing& there) {
        const auto attribute = std::exchange(attribute_, std::nullopt); // once
        if (!attribute || is_validated || checkpoint::has_metric(line, *attribute) ||
            std::ranges::any_of(there.committed, [&](const checkpoint::Committed& item) {
                return checkpoint::has_metric(item.metrics, *attribute);
            })) {
            return;
        }
        std::string names;
        for (const auto& item : metrics) {
            names += (names.empty() ? "\"" : ", \"") + std::string(item.key()) + '"';
        }
        std::fprintf(stderr,
                     "rtrain: score_attribute is \"%s\", but no report so far has such a number; "
                     "this one has %s. Checkpoints without a score rank lowest\n",
                     attribute->c_str(), names.empty() ? "no metrics" : names.c_str());
    }

private:
    std::optional<std::string> attribute_; ///< until it was looked for
};

} // namespace rtrain
