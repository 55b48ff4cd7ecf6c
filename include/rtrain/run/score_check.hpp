// SPDX-License-Identifier: Apache-2.0
/// @file
/// ScoreCheck: warns once if no report has the metric that checkpoints are ranked by.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/checkpoint/store/ranking.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/observer.hpp>
#include <rtrain/journal/run_log.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace rtrain {

/// Checks the first checkpoint of each start, and those that already exist.
class ScoreCheck : public track::Observer {
public:
    explicit ScoreCheck(const CheckpointConfig& config) : configured_(config.score_attribute) {}

    [[nodiscard]] std::string name() const override { return "the check of score_attribute"; }

    void started(const track::Started& event) override {
        attribute_ = configured_;
        for (const auto& item : event.checkpoints) {
            find_in(item.metrics);
        }
    }
    void validated(const track::Validated& event) override { find_in(event.record.metrics); }

    void reported(const track::Reported& event) override {
        if (event.line.at(track::RunLog::checkpoint_field).is_null()) {
            return;
        }
        find_in(event.line);
        const auto missing = std::exchange(attribute_, std::nullopt);
        if (!missing || event.asks_for_validation) { // which may add it
            return;
        }
        std::string names;
        for (const auto& item : event.line) {
            if (!track::RunLog::fills_in(item.key()) && item.key() != track::time_field) {
                names += (names.empty() ? "\"" : ", \"") + std::string(item.key()) + '"';
            }
        }
        console::warn("score_attribute is \"%s\", but no report so far has a number of that name; "
                      "this one has %s. Checkpoints without a score rank lowest",
                      missing->c_str(), names.empty() ? "no metrics" : names.c_str());
    }

private:
    void find_in(const Config& metrics) {
        if (attribute_ && checkpoint::has_metric(metrics, *attribute_)) {
            attribute_.reset();
        }
    }

    std::optional<std::string> configured_;
    std::optional<std::string> attribute_; ///< until found or checked
};

} // namespace rtrain
