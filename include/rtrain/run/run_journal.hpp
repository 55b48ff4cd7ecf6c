// SPDX-License-Identifier: Apache-2.0
/// @file
/// RunJournal: rank 0's side of a run: what it records, in which order, and which observers it
/// notifies. Nothing in it is collective.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/checkpoint/store/user_files.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/config/merged.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/observers.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/status/step_clock.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/run/options/report_options.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/run/run_identity.hpp>
#include <rtrain/run/slow_rank.hpp>
#include <rtrain/run/step_tensors.hpp>
#include <rtrain/run/stop_judge.hpp>
#include <rtrain/run/validations.hpp>
#include <rtrain/track/files/step_log.hpp>
#include <rtrain/track/lines/step_value.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

/// Writes a line of result.json before the checkpoint that belongs to it. If the program dies in
/// between, the report is newer than the newest checkpoint and will be repeated. Notifies observers
/// after each write.
class RunJournal {
public:
    /// Arguments outlive this object.
    RunJournal(RunDirectory& directory, checkpoint::Store& store, const TrainerOptions& options,
               launch::FitCall call, track::Observers& observers)
        : context_(call.context), directory_(directory), store_(store), options_(options),
          observers_(observers), identity_(directory, options, call.function),
          log_(directory.log_directory(), options.config), judge_(options.run.stop),
          steps_(directory.log_directory() / track::steps_file,
                 [&observers](std::uint64_t size, std::int64_t step, const Config& last) {
                     observers.stepped({.step = step, .steps_size = size, .line = &last});
                 }),
          validations_(store, options.validation, call, observers) {}

    /// Throws ConfigError [RT-C50] in the directory of a different run.
    void require_same_run() { identity_.require_same(); }

    /// The training function uses a data set.
    void uses(const std::string& dataset, std::int64_t rows, std::uint64_t content) {
        identity_.uses(dataset, rows, content);
    }

    /// Resumes after this run's checkpoint `own`; "" for none. Throws ConfigError [RT-C32].
    void open(const std::string& own) {
        resumed_ = !own.empty();
        Config last;
        for (const auto& item : store_.listing().committed) {
            last = own == item.name ? item.metrics : last;
        }
        const auto judge = [this](Config line) {
            line[track::RunLog::checkpoint_field] = nullptr; // unknown when it was reported
            line.erase("should_checkpoint");
            judge_.hear(line);
        };
        if (auto set_aside = log_.open(own.empty() ? nullptr : &last, judge)) {
            directory_.add_log(std::move(*set_aside));
        }
        judge_.hear_time(log_.total_seconds());
        steps_.open(own, log_.iteration());
        identity_.write();
    }

    /// Called once all ranks have resumed the run in this attempt, from the checkpoint of this
    /// name. Clears the previous attempt's failure, and submits its pending validations.
    void begin(const std::string& from, const std::string& attempt) {
        observers_.started({.name = directory_.name(),
                            .location = directory_.uri(),
                            .directory = directory_.location(),
                            .attempt = attempt,
                            .resumed = resumed_,
                            .logs = directory_.log_directory(),
                            .log_size = log_.size(),
                            .step = steps_.step(),
                            .steps_size = steps_.size(),
                            .iteration = log_.iteration(),
                            .checkpoint = from,
                            .checkpoints = store_.listing().committed});
        directory_.location().filesystem.remove(directory_.path_of(track::error_file));
        if (has_stopped()) {
            write_stop_reason();
        } else {
            directory_.location().filesystem.remove(directory_.path_of(track::stop_file));
        }
        set_time_limit();
        validations_.resume();
    }

    /// The number of reports in the newest checkpoint of this run.
    [[nodiscard]] std::int64_t iterations_saved() const {
        const auto committed = store_.listing().committed;
        return committed.empty() ? 0 : track::number_of(committed.back().metrics);
    }

    /// Throws unless the run's directory is still the one that this attempt took.
    void require_current() const {
        directory_.require_same();
        store_.staging().require_current();
    }

    /// True if a recorded report was the last, according to RunConfig::stop.
    [[nodiscard]] bool has_stopped() const noexcept { return judge_.stops(); }

    struct Found {
        bool stops = false;         ///< the run stops here
        std::exception_ptr error{}; ///< the metrics are invalid
    };
    /// Checks a report; `metrics` null: a checkpoint between two reports.
    [[nodiscard]] Found look_at(const Config* metrics) noexcept {
        try {
            if (metrics != nullptr) {
                track::require_metric_names(*metrics);
                warn_of_nan(*metrics);
            }
            return {.stops = begin_report(metrics)};
        } catch (...) {
            return {.error = std::current_exception()};
        }
    }

    /// Reports a prepared model.
    void prepared(const track::Prepared& model) { observers_.prepared(model); }

    /// Logs a step's metrics, without blocking.
    void log(std::span<const StepMetric> metrics) { steps_.log(metrics); }

    /// Adds the ranks' step times since the previous call, for the next line.
    void spent(const std::vector<StepTimes>& by_rank) {
        detail::add_to(times_, by_rank);
        if (const auto slow = slow_rank_.look(by_rank)) {
            console::warn("%s", slow->c_str());
        }
    }

    /// Records a report without a checkpoint.
    void record(const Config& metrics) {
        if (directory_.is_local()) {
            require_current();
        }
        append(line_of(metrics, std::nullopt), false);
    }

    /// Call before ranks write the checkpoint `name`: writes its line. `metrics`: of its report, or
    /// null.
    [[nodiscard]] Config announce(const std::string& name, const Config* metrics,
                                  const ReportOptions& options) {
        identity_.note_datasets();
        store_.set_validation(name, validations_.wanted(options), false);
        steps_.mark(name);
        Config line = metrics != nullptr ? line_of(*metrics, name) : log_.last_line(name);
        if (const Config metadata = detail::merged(options_.metadata, options.metadata);
            !metadata.empty()) {
            store_.staging().write_metadata(name, metadata);
        }
        if (metrics != nullptr) {
            append(line, asks_for_validation(options));
        }
        return line;
    }

    /// Commits a checkpoint whose files are already in place.
    void commit_in_place(const std::string& name, const Config& metrics,
                         const ReportOptions& options) {
        const Checkpoint there = store_.checkpoint(name);
        steps_.mark(name);
        store_.set_validation(name, validations_.wanted(options), true);
        const Config line = line_of(metrics, name);
        if (const Config metadata = detail::merged(options_.metadata, options.metadata);
            !metadata.empty()) {
            there.update_metadata(metadata);
        }
        auto contents = checkpoint::contents_in_place(there.location());
        append(line, asks_for_validation(options));
        store_.commit_in_place(name, std::move(contents), line);
        committed(name, line);
    }

    /// Called in the thread that committed it.
    void committed(const std::string& name, const Config& line) {
        observers_.saved({.checkpoint = name, .line = line});
        validations_.submit(name);
        directory_.publish_logs();
    }

    /// Last call: flushes what is left of the run.
    void close(bool pauses) {
        if (!pauses && log_.iteration() == 0) {
            console::warn("the training function has returned without a report, so the result has "
                          "no metrics; call worker.report() after each epoch");
        }
        steps_.close();
        observers_.closing({.pauses = pauses});
        if (!pauses) {
            identity_.write(/*finished=*/true);
        }
        directory_.publish_logs();
    }

    /// Passes all ranks' metrics, and the checkpoint saved with them, to observers; does nothing if
    /// none uses them.
    void tell_all(const std::vector<Config>& metrics, const std::optional<Checkpoint>& checkpoint) {
        if (!metrics.empty()) {
            observers_.reported_by_all({.metrics = metrics, .checkpoint = checkpoint});
        }
    }

    /// Waits at most that many seconds.
    void wait_for_validations(std::optional<double> timeout_s) { validations_.wait(timeout_s); }

private:
    /// Keeps a user's metrics named "time" and "data".
    [[nodiscard]] Config line_of(Config metrics, std::optional<std::string> checkpoint) const {
        Config line = log_.complete(std::move(metrics), std::move(checkpoint));
        line.emplace(track::time_field, detail::time_of(times_));
        if (const std::int64_t skipped = detail::skipped_rows(times_); skipped > 0) {
            line.emplace(track::data_field, Config{{"skipped_rows", skipped}});
        }
        return line;
    }

    void append(const Config& line, bool asks_for_validation) {
        identity_.note_datasets();
        identity_.forget_finished();
        log_.append(line);
        times_.clear();
        set_time_limit();
        steps_.reported(log_.iteration());
        observers_.reported(
            {.line = line, .asks_for_validation = asks_for_validation, .log_size = log_.size()});
    }

    /// Warns once for each metric.
    void warn_of_nan(const Config& metrics) {
        for (const auto& item : metrics) {
            const double* const number = item.value().if_double();
            if (number != nullptr && std::isnan(*number) && nan_.emplace(item.key()).second) {
                console::warn(
                    "metric \"%s\" of report %lld is NaN; check the loss and the batches, "
                    "lower the learning rate, or set check_gradients in prepare()'s "
                    "options, which names the first affected parameter",
                    std::string(item.key()).c_str(), static_cast<long long>(log_.iteration() + 1));
            }
        }
    }

    /// Returns true if the run stops at this report. Throws ConfigError [RT-C32].
    [[nodiscard]] bool begin_report(const Config* metrics) {
        log_.begin_report();
        if (judge_.is_empty() || has_stopped()) {
            return false;
        }
        if (metrics == nullptr) {
            judge_.hear_time(log_.total_seconds());
        } else { // as it will be read back
            const std::string line = json::serialize(log_.complete(*metrics, std::nullopt));
            judge_.hear(json::parse(line).as_object());
        }
        if (!has_stopped()) {
            return false;
        }
        write_stop_reason();
        console::say("the run stops %s report %lld: %s", metrics != nullptr ? "at" : "after",
                     static_cast<long long>(log_.iteration() + (metrics != nullptr ? 1 : 0)),
                     judge_.reason().c_str());
        return true;
    }

    void write_stop_reason() const {
        directory_.write(track::stop_file, json::serialize({{"reason", judge_.reason()}}));
    }

    /// Sets when ranks that vote between reports will find the time limit expired. Adds 1 ms to
    /// MaxTime, so that the next report also finds it expired after rounding.
    void set_time_limit() const {
        if (const auto& limit = judge_.time_limit_s(); limit && !has_stopped()) {
            context_.time_limit.set(log_.when_total_is(*limit) + std::chrono::milliseconds(1));
        }
    }

    ProcessContext& context_;
    RunDirectory& directory_;
    checkpoint::Store& store_;
    const TrainerOptions& options_;
    track::Observers& observers_;
    detail::RunIdentity identity_;
    track::RunLog log_;
    StopJudge judge_;
    track::StepLog<StepTensors> steps_;
    bool resumed_ = false;
    std::vector<StepTimes> times_; ///< by rank, since the last line
    detail::SlowRank slow_rank_;
    std::set<std::string> nan_; ///< metrics that were NaN
    Validations validations_;   ///< last: its thread uses the others
};

} // namespace rtrain
