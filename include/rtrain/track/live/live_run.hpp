// SPDX-License-Identifier: Apache-2.0
/// @file
/// LiveRun: the state of a live page, read from the run's logs as they grow. Not thread-safe.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/observer.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/track/lines/log_reader.hpp>
#include <rtrain/track/live/live_note.hpp>
#include <rtrain/track/page/report_page.hpp>
#include <rtrain/track/page/run_report.hpp>
#include <rtrain/track/page/run_summary.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::track {

/// Reads the reports in a log that a client has not seen yet.
class UnseenReports {
public:
    /// Starts after the first `seen` reports.
    UnseenReports(const std::filesystem::path& file, std::int64_t seen)
        : reader_(file), seen_(seen) {}

    struct Report {
        std::string_view line; ///< valid until the next call
        std::int64_t iteration = 0;
    };

    /// The next report below byte `limit`.
    [[nodiscard]] std::optional<Report> next(std::uint64_t limit) {
        if (std::exchange(has_one_, false)) {
            reader_.pass();
        }
        for (; const auto line = reader_.line(limit); reader_.pass()) {
            const std::int64_t iteration = number_of(json::parse(*line).as_object());
            if (iteration > seen_) {
                has_one_ = true;
                seen_ = iteration;
                return Report{*line, iteration};
            }
        }
        return std::nullopt;
    }

    [[nodiscard]] std::int64_t seen() const noexcept { return seen_; }

private:
    LogReader reader_;
    std::int64_t seen_;
    bool has_one_ = false;
};

class LiveRun {
public:
    explicit LiveRun(CheckpointConfig config) : config_(std::move(config)) {}

    /// The run has started or resumed.
    void begin(Started event) {
        at_ = std::move(event);
        run_ = {};
        run_.name = at_->name;
        run_.location = at_->location;
        run_.status = "running";
        reports_.emplace(results(), 0);
        visit_lines(at_->logs / superseded_file,
                    [this](const Config& line) { run_.add_superseded(line); });
        lists_checkpoints_ = true;
        read();
    }
    /// result.json has grown to `log_size` bytes.
    void grow(std::uint64_t log_size) {
        at_->log_size = log_size;
        read();
    }
    void checkpoints_change() noexcept { lists_checkpoints_ = true; }
    void set_status(std::string status, std::string error) {
        run_.status = std::move(status);
        run_.error = std::move(error);
    }

    [[nodiscard]] std::uint64_t log_size() const { return at_->log_size; }
    [[nodiscard]] const std::string& attempt() const { return at_->attempt; }
    [[nodiscard]] std::filesystem::path results() const { return at_->logs / results_file; }

    /// The current page.
    [[nodiscard]] std::string page() {
        const storage::Location logs{storage::Local{}, at_->logs.string()};
        run_.config = internal::object_in_file(logs, params_file);
        run_.facts = internal::object_in_file(logs, run_file);
        if (std::exchange(lists_checkpoints_, false)) {
            run_.checkpoints = kept_checkpoints_in(at_->directory);
            mark_best(run_, config_);
        }
        return report_page(run_, true);
    }

private:
    void read() {
        while (const auto report = reports_->next(at_->log_size)) {
            Config line = json::parse(report->line).as_object();
            run_.add(line);
            run_.last = std::move(line);
        }
    }

    CheckpointConfig config_;
    std::optional<Started> at_;
    RunSummary run_;
    std::optional<UnseenReports> reports_;
    bool lists_checkpoints_ = false;
};

} // namespace rtrain::track
