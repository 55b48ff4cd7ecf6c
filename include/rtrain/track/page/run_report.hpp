// SPDX-License-Identifier: Apache-2.0
/// @file
/// report.html: a page that shows a run, in the run's directory. RunReport writes it when a fit()
/// call ends, write_report() at any time.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/base/name_table.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/store/ranking.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/observer.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/process/stdio/standard_streams.hpp> // a standalone program may be started without
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/storage/location.hpp>
#include <rtrain/track/lines/log_reader.hpp>
#include <rtrain/track/page/report_page.hpp>
#include <rtrain/track/page/run_facts.hpp>
#include <rtrain/track/page/run_summary.hpp>

#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::track {

/// Marks the best checkpoint, if a score attribute is set.
inline void mark_best(RunSummary& run, const CheckpointConfig& config) {
    KeptCheckpoint* best = nullptr;
    double best_score = 0;
    for (KeptCheckpoint& item : run.checkpoints) {
        const auto score = config.score_attribute
                               ? checkpoint::metric_at(item.metrics, *config.score_attribute)
                               : std::nullopt;
        const bool is_better =
            score &&
            (best == nullptr ||
             (config.score_order == ScoreOrder::max ? *score >= best_score : *score <= best_score));
        if (is_better) {
            best = &item;
            best_score = *score;
        }
    }
    if (best != nullptr) {
        best->is_best = true;
    }
}

/// The ranking of a run's checkpoints, from its trainer.json.
[[nodiscard]] inline CheckpointConfig ranking_in(const storage::Location& run) {
    CheckpointConfig config;
    const std::string file = run.path + "/" + trainer_file;
    if (!run.filesystem.exists(file)) {
        return config;
    }
    const Config saved = json::parse(run.filesystem.read(file)).as_object();
    const auto* const options = saved.if_contains("checkpoint");
    if (options != nullptr && options->is_object()) {
        const Config& given = options->get_object();
        if (auto metric = RunSummary::text_of(given, "score_attribute"); !metric.empty()) {
            config.score_attribute = std::move(metric);
        }
        config.score_order = ScoreOrder::names.parse(RunSummary::text_of(given, "score_order"))
                                 .value_or(ScoreOrder::max);
    }
    return config;
}

/// The location of a run.
[[nodiscard]] inline storage::Location location_of(const Result& result) {
    return result.filesystem ? storage::Location{*result.filesystem, result.path.string()}
                             : storage::locate(result.path);
}

/// Writes the page to the run's directory; returns its path or URI.
inline std::string write_page(const storage::Location& run, const std::string& page) {
    const std::string file = run.path + "/" + report_file;
    if (run.filesystem.is_local()) {
        constexpr bool durably = false; // it can be recreated
        storage::replace_file_by(
            file, [&](storage::OutputFile& output) { output.write(page); }, durably);
    } else {
        run.filesystem.write(file, page);
    }
    return run.filesystem.uri(file);
}

namespace internal {

/// The object in a file of a run's directory; empty if it does not exist or cannot be read.
[[nodiscard]] inline Config object_in_file(const storage::Location& run, const char* name) {
    const std::string file = run.path + "/" + name;
    try {
        return run.filesystem.exists(file) ? json::parse(run.filesystem.read(file)).as_object()
                                           : Config();
    } catch (const std::bad_alloc&) { // not the file's fault
        throw;
    } catch (const std::exception&) {
        return {};
    }
}

inline constexpr auto ended_names =
    rtrain::detail::name_table<Ended::How>({{Ended::How::finished, "finished"},
                                            {Ended::How::preempted, "preempted"},
                                            {Ended::How::failed, "failed"}});

} // namespace internal

/// The contents of the page.
[[nodiscard]] inline RunSummary summary_of(const Result& result) {
    const storage::Location at = location_of(result);
    RunSummary run;
    run.name = result.path.filename().string();
    run.location = at.filesystem.uri(at.path);
    if (!result.stop_reason.empty()) {
        run.status = "stopped: " + result.stop_reason;
    }
    if (result.error) {
        run.status = "failed";
        run.error_code = result.error->code();
        run.error = result.error->message();
    }
    for (const Config& line : result.metrics_history) {
        run.add(line);
    }
    run.last = result.metrics;
    run.config = internal::object_in_file(at, params_file);
    run.facts = internal::object_in_file(at, run_file);
    if (const auto file = at.path + "/" + superseded_file; at.filesystem.exists(file)) {
        for (const Config& line : read_reports(at.filesystem.read(file), 0).reports) {
            run.add_superseded(line);
        }
    }
    for (const auto& [checkpoint, metrics] : result.best_checkpoints) {
        run.checkpoints.push_back(
            {checkpoint.path.filename().string(), number_of(metrics), metrics});
    }
    return run;
}

/// Writes report.html to the run's directory, in any state of the run; returns its path or URI.
/// Throws StorageError if that fails.
inline std::string write_report(const Result& result) {
    const storage::Location at = location_of(result);
    RunSummary run = summary_of(result);
    mark_best(run, ranking_in(at));
    return write_page(at, report_page(run));
}

/// The ending of a run, for people.
[[nodiscard]] constexpr std::string_view words_of(Ended::How how) noexcept {
    return internal::ended_names[how];
}

/// The checkpoints in a run's directory, with their metrics.
[[nodiscard]] inline std::vector<KeptCheckpoint> kept_checkpoints_in(const storage::Location& run) {
    std::vector<KeptCheckpoint> kept;
    for (auto& item : checkpoint::list_checkpoints(run).committed) {
        if (has_number(item.metrics)) {
            kept.push_back({item.name, number_of(item.metrics), std::move(item.metrics)});
        }
    }
    return kept;
}

/// Visits the readable lines of a log: a crash may have truncated one.
template <class Visit>
void visit_lines(const std::filesystem::path& log, Visit&& visit) {
    if (!std::filesystem::exists(log)) {
        return;
    }
    LogReader lines(log);
    for (; const auto text = lines.line(); lines.pass()) {
        try {
            visit(json::parse(*text).as_object());
        } catch (const std::bad_alloc&) { // not the line's fault
            throw;
        } catch (const std::exception&) {
        }
    }
}

/// Writes the page on rank 0 when a fit() call ends, with only a part of the log in memory.
class RunReport : public Observer {
public:
    explicit RunReport(CheckpointConfig config) : config_(std::move(config)) {}

    [[nodiscard]] std::string name() const override { return report_file; }

    /// Records the run's facts.
    void started(const Started& event) override {
        is_written_ = false;
        name_ = event.name;
        directory_ = event.directory;
        logs_ = event.logs;
        models_.clear();
        write_facts();
    }
    void prepared(const Prepared& event) override {
        models_.push_back(event.parts);
        write_facts();
    }
    void restarting(const Restarting& event) override { facts_.ranks = event.ranks; }

    /// Call before started().
    void describe(RunFacts facts) { facts_ = std::move(facts); }

    /// Writes the page early, for trackers that upload it.
    void closing(const Closing& event) override {
        write(event.pauses ? Ended::How::preempted : Ended::How::finished, "");
        is_written_ = true;
    }

    /// Writes the page.
    void ended(const Ended& event) override {
        if (!is_written_ || event.how == Ended::How::failed) {
            write(event.how, event.message);
        }
    }

private:
    /// Stores the facts for pages that are made later.
    void write_facts() const {
        storage::replace_file_unsynced(logs_ / run_file,
                                       json::serialize(to_json(facts_, models_)) + "\n");
    }

    void write(Ended::How how, const std::string& message) const {
        const storage::Location& at = *directory_;
        const bool has_logs = std::filesystem::exists(logs_ / results_file);
        if (!has_logs && at.filesystem.is_local()) {
            return; // the run's directory is gone; writing would recreate it
        }
        RunSummary run =
            has_logs ? gather() : summary_of(Result::from_path(at.path, at.filesystem));
        if (run.status.empty() || how != Ended::How::finished) {
            run.status = words_of(how);
        }
        run.error = message;
        mark_best(run, config_);
        const std::string page = report_page(run);
        write_page(at, page);
        if (has_logs && !at.filesystem.is_local()) {
            at.filesystem.write(at.path + "/" + run_file,
                                json::serialize(to_json(facts_, models_)));
            write_page({storage::Local{}, logs_.string()}, page);
        }
    }

    /// Collects the page's contents from the local logs.
    [[nodiscard]] RunSummary gather() const {
        RunSummary run;
        run.name = name_;
        run.location = directory_->filesystem.uri(directory_->path);
        run.config = internal::object_in_file({storage::Local{}, logs_.string()}, params_file);
        run.facts = to_json(facts_, models_);
        visit_lines(logs_ / results_file, [&run](Config line) {
            run.add(line);
            run.last = std::move(line);
        });
        visit_lines(logs_ / superseded_file,
                    [&run](const Config& line) { run.add_superseded(line); });
        run.checkpoints = kept_checkpoints_in(*directory_);
        if (const auto file = directory_->path + "/" + stop_file;
            directory_->filesystem.exists(file)) {
            const Config stopped = json::parse(directory_->filesystem.read(file)).as_object();
            run.status = "stopped: " + RunSummary::text_of(stopped, "reason");
        }
        return run;
    }

    CheckpointConfig config_;
    RunFacts facts_;
    std::vector<std::vector<console::ModelPart>> models_; ///< prepared in this start
    std::string name_;
    std::optional<storage::Location> directory_;
    std::filesystem::path logs_;
    bool is_written_ = false; ///< true once nothing more can fail
};

} // namespace rtrain::track
