// SPDX-License-Identifier: Apache-2.0
/// @file
/// Texts of RunConsole: the header of a run, its models, its latest metrics, and its outcome.
#pragma once

#include <rtrain/checkpoint/store/ranking.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/console/model_table.hpp>
#include <rtrain/console/numbers.hpp>
#include <rtrain/console/table.hpp>
#include <rtrain/journal/observer.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/process/status/loop_status.hpp>
#include <rtrain/process/status/step_clock.hpp>
#include <rtrain/track/page/run_facts.hpp>
#include <rtrain/track/page/run_summary.hpp>
#include <rtrain/track/page/time_shares.hpp>
#include <rtrain/version.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::track {

namespace console_text {

[[nodiscard]] inline std::string counted(std::int64_t count, const std::string& what) {
    return std::to_string(count) + ' ' + what + (count == 1 ? "" : "s");
}

/// "from checkpoint_000003, after 4 reports"
[[nodiscard]] inline std::string origin(const Started& event) {
    std::string text = "from " + event.checkpoint;
    return event.iteration > 0 ? text + ", after " + counted(event.iteration, "report") : text;
}

} // namespace console_text

[[nodiscard]] inline std::string header_text(const Started& event, const RunFacts& facts) {
    using console_text::counted;
    std::vector<std::pair<std::string, std::string>> items = facts.libraries;
    items.emplace_back(
        "ranks", std::to_string(facts.ranks) + " on " + counted(facts.hosts, "host") +
                     (facts.device.empty() // a program, which is not observed
                          ? ""
                          : ", " + counted(facts.threads, "thread") + " each, " + facts.device));
    items.emplace_back("storage", event.location);
    if (!event.checkpoint.empty()) {
        items.emplace_back("resumed", console_text::origin(event));
    }
    return "rtrain " RTRAIN_VERSION ": run " + console::printable(event.name) + '\n' +
           console::list(items);
}

/// The header of a run that resumes in the same processes.
[[nodiscard]] inline std::string resumed_text(const Started& event) {
    return "rtrain: run " + console::printable(event.name) + " restarts, " +
           (event.checkpoint.empty() ? "from the start" : console_text::origin(event)) + '\n';
}

[[nodiscard]] inline std::string model_text(const std::vector<console::ModelPart>& parts,
                                            int verbose, std::optional<double> flops,
                                            const LoopStatus::Length& length, int columns) {
    constexpr int all_depths = 1'000'000;
    std::vector<std::pair<std::string, std::string>> items;
    if (flops && *flops > 0) {
        items.emplace_back("first step", console::scaled(*flops, "FLOP") +
                                             " per rank, in products, convolutions and attention");
    }
    if (length.rows > 0) {
        items.emplace_back("batch",
                           std::to_string(length.rows) + " per rank" +
                               (length.rows_of_all > 0
                                    ? ", " + std::to_string(length.rows_of_all) + " in total"
                                    : std::string()));
    }
    return console::model_table(parts, verbose > 1 ? all_depths : 1, columns) +
           console::list(items);
}

/// The numbers of the latest report, and those of worker.log() since.
class LatestMetrics {
public:
    void report(const Config& line) { set(reported_, line, IsMetric{line}); }
    void step(const Config& line) {
        set(stepped_, line, [](std::string_view name) {
            return name != step_field && name != iteration_field && name != "timestamp";
        });
    }

    /// "loss=0.123, accuracy=0.98"; steps first.
    [[nodiscard]] std::string text() const {
        std::string text;
        for (const auto& [name, value] : stepped_) {
            text += (text.empty() ? "" : ", ") + name + '=' + value;
        }
        for (const auto& [name, value] : reported_) {
            const bool is_older =
                std::any_of(stepped_.begin(), stepped_.end(),
                            [&name = name](const auto& item) { return item.first == name; });
            text += is_older ? "" : (text.empty() ? "" : ", ") + name + '=' + value;
        }
        return text;
    }

private:
    using Values = std::vector<std::pair<std::string, std::string>>;

    template <class Counts>
    static void set(Values& values, const Config& line, Counts&& counts) {
        constexpr std::size_t most = 20; // more do not fit in a line
        constexpr int digits = 4;
        values.clear();
        for (const auto& item : line) {
            if (item.value().is_number() && counts(item.key()) && values.size() < most) {
                values.emplace_back(std::string(item.key()),
                                    console::rounded(item.value().to_number<double>(), digits));
            }
        }
    }

    Values reported_;
    Values stepped_;
};

/// The outcome of a run, since this process takes part in it.
class RunOutcome {
public:
    explicit RunOutcome(CheckpointConfig ranking) : ranking_(std::move(ranking)) {}

    void begin(const Started& event) {
        name_ = event.name;
        location_ = event.location;
        iteration_ = event.iteration;
        best_.clear();
        best_score_.reset();
        for (const checkpoint::Committed& item : event.checkpoints) {
            consider(item.name, item.metrics);
        }
    }
    void reported(const Config& line) {
        iteration_ = number_of(line);
        last_.report(line);
        time_.add(iteration_, line);
    }
    void saved(const Saved& event) { consider(event.checkpoint, event.line); }

    [[nodiscard]] std::string text(Ended::How how, const RunFacts& facts) const {
        const char* const word = how == Ended::How::finished    ? "has finished"
                                 : how == Ended::How::preempted ? "was preempted"
                                                                : "has failed";
        std::vector<std::pair<std::string, std::string>> items;
        const auto add = [&](const char* name, std::string text) {
            if (!text.empty()) {
                items.emplace_back(name, std::move(text));
            }
        };
        add("last", last_.text());
        add("best", best_);
        add("time", time_text());
        add("files", location_);
        add("resume", facts.goes_on);
        return "rtrain: run " + console::printable(name_) + ' ' + word + ", with " +
               console_text::counted(iteration_, "report") + '\n' + console::list(items);
    }

private:
    void consider(const std::string& checkpoint, const Config& line) {
        const auto& attribute = ranking_.score_attribute;
        const auto score = attribute ? checkpoint::metric_at(line, *attribute) : std::nullopt;
        const bool is_better = score && (!best_score_ || (ranking_.score_order == ScoreOrder::max
                                                              ? *score >= *best_score_
                                                              : *score <= *best_score_));
        if (is_better) {
            constexpr int digits = 4;
            best_score_ = score;
            best_ = *attribute + '=' + console::rounded(*score, digits) + ", in " + checkpoint;
        }
    }

    /// "1234 rows/s; forward 30 %, backward 60 %, ..."; "" if unknown.
    [[nodiscard]] std::string time_text() const {
        const double seconds = time_.total_seconds();
        if (!(seconds > 0)) {
            return "";
        }
        std::vector<std::size_t> parts;
        for (std::size_t i = 0; i < step_part_names.size(); ++i) {
            parts.push_back(i);
        }
        std::stable_sort(parts.begin(), parts.end(), [this](std::size_t a, std::size_t b) {
            return time_.total()[a] > time_.total()[b];
        });
        std::string text =
            time_.rows() > 0 ? console::grouped(std::llround(time_.rows() / seconds)) + " rows/s; "
                             : std::string();
        for (const std::size_t part : parts) {
            const long percent = std::lround(100 * time_.total()[part] / seconds);
            if (percent > 0) {
                text += std::string(part == parts.front() ? "" : ", ") +
                        std::string(step_part_names[part]) + ' ' + std::to_string(percent) + " %";
            }
        }
        return text;
    }

    CheckpointConfig ranking_;
    std::string name_;
    std::string location_;
    std::int64_t iteration_ = 0;
    LatestMetrics last_;
    TimeShares time_;
    std::string best_;
    std::optional<double> best_score_;
};

} // namespace rtrain::track
