// SPDX-License-Identifier: Apache-2.0
/// @file
/// RunBook: the directory of a program's run, as the driver writes it: reports, checkpoints, and
/// what observers make of them.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/console/screen.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/observers.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/run/config_differences.hpp>
#include <rtrain/run/resumable.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/run/score_check.hpp>
#include <rtrain/run/stop_judge.hpp>
#include <rtrain/storage/locate.hpp>
#include <rtrain/track/delivery/trackers.hpp>
#include <rtrain/track/files/step_log.hpp>
#include <rtrain/track/live/live_page.hpp>
#include <rtrain/track/page/run_report.hpp>
#include <rtrain/track/terminal/run_console.hpp>

#include <boost/json/value.hpp>

#include <cmath>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::program {

/// Writes a report's line before the checkpoint that belongs to it, as RunJournal does. Used by one
/// thread. A run that reports nothing has no more files than result.json and params.json.
class RunBook {
public:
    /// Takes the run's directory, and removes the error of an earlier run. `run` has a name;
    /// arguments outlive this object. Throws StorageError [RT-S1], [RT-S7], ConfigError [RT-C50].
    RunBook(const RunConfig& run, const Config& config)
        : run_(run), directory_(detail::run_location(run, run.name), track::logs_of(run)),
          attempt_(detail::new_attempt()),
          report_(std::make_shared<track::RunReport>(run.checkpoint)),
          log_(directory_.log_directory(), config),
          steps_(directory_.log_directory() / track::steps_file,
                 [this](std::uint64_t size, std::int64_t step, const Config& last) {
                     observers_.stepped({.step = step, .steps_size = size, .line = &last});
                 }),
          judge_(run.stop) {
        directory_.take(attempt_);
        if (run.resume != Resume::always) {
            require_same(config);
        }
        directory_.location().filesystem.remove(directory_.path_of(track::error_file));
        observers_.add(report_);
        observers_.add(std::make_shared<track::Trackers>(run.trackers, config));
        observers_.add(std::make_shared<ScoreCheck>(run.checkpoint));
        if (const auto& port = run.console.live) {
            observers_.add(std::make_shared<track::LivePage>(*port, run.checkpoint));
        }
    }
    RunBook(const RunBook&) = delete;
    RunBook& operator=(const RunBook&) = delete;

    /// Adds an observer. Call before the run starts.
    void add(std::shared_ptr<track::Observer> observer) { observers_.add(std::move(observer)); }

    /// Call before each start of the ranks, after all earlier ones have ended: resumes after the
    /// newest intact checkpoint that is not in `skip`. Throws CheckpointError [RT-K1, RT-K2],
    /// StorageError.
    void begin(const std::vector<std::string>& skip, int ranks) {
        attempt_ = detail::new_attempt(); // ranks of an earlier start may still write
        directory_.write(checkpoint::Staging::attempt_file, attempt_);
        store_.emplace(checkpoint::Staging(directory_.location(), attempt_, directory_.scratch(),
                                           run_.transfer, /*first_list=*/0),
                       run_.checkpoint);
        store_->open();
        const Config last = find_newest(skip);
        judge_ = StopJudge(run_.stop);
        const auto judge = [this](Config line) {
            line[track::RunLog::checkpoint_field] = nullptr; // unknown when it was reported
            line.erase("should_checkpoint");
            judge_.hear(line);
        };
        if (auto set_aside = log_.open(newest_ ? &last : nullptr, judge)) {
            directory_.add_log(std::move(*set_aside));
        }
        steps_.close(); // with what an earlier start has logged
        steps_.open(newest_ ? newest_->path.filename().string() : "", log_.iteration());
        judge_.hear_time(log_.total_seconds());
        note_stop();
        directory_.publish_logs();
        report_->describe({.ranks = ranks});
        if (run_.console.verbose > 0 && !std::exchange(has_console_, true)) {
            observers_.add(std::make_shared<track::RunConsole>(
                run_.console, run_.checkpoint,
                track::RunFacts{.ranks = ranks, .goes_on = "the same command again"},
                console::Screen::of_stderr()));
        }
        is_started_ = false;
        if (newest_) {
            tell_start();
        }
    }

    [[nodiscard]] const RunDirectory& directory() const noexcept { return directory_; }
    /// Identifies the current start.
    [[nodiscard]] const std::string& attempt() const noexcept { return attempt_; }
    /// The newest checkpoint.
    [[nodiscard]] const std::optional<Checkpoint>& newest() const noexcept { return newest_; }

    /// The number of reports.
    [[nodiscard]] std::int64_t iteration() const noexcept { return log_.iteration(); }
    /// Why RunConfig::stop has stopped the run, as of the report that has begun; empty: it has not.
    [[nodiscard]] const std::string& stop_reason() const noexcept { return judge_.reason(); }

    /// Checks a report, and sets its time to now. Throws ConfigError [RT-C10], [RT-C32], [RT-C75],
    /// StorageError [RT-S16], [RT-S17].
    void begin_report(const Config& metrics) {
        directory_.require_same();
        store_->staging().require_current();
        track::require_metric_names(metrics);
        log_.begin_report();
        const Config line = log_.complete(metrics, std::nullopt);
        if (judge_.is_empty() || judge_.stops()) {
            return;
        }
        judge_.hear(json::parse(json::serialize(line)).as_object()); // as it will be read back
        if (judge_.stops()) {
            note_stop();
            console::say("the run stops at report %lld: %s",
                         static_cast<long long>(log_.iteration() + 1), judge_.reason().c_str());
        }
    }

    /// Records the report that has begun. Returns its number.
    std::int64_t record(const Config& metrics) {
        append(log_.complete(metrics, std::nullopt));
        return log_.iteration();
    }

    /// Logs a step's metrics, without blocking. Those that cannot be logged are left out.
    void log(const Config& metrics) {
        std::vector<track::StepLog<track::StepNumbers>::Metric> numbers;
        for (const auto& item : metrics) {
            numbers.emplace_back(item.key(), json::number(item.value()).value_or(NAN));
        }
        if (!is_started_) {
            tell_start();
        }
        try {
            steps_.log(numbers);
        } catch (const ConfigError& error) { // the module has checked them
            console::warn("%s", error.what());
        }
    }

    /// Creates the directory into which ranks copy the files of the next checkpoint. Returns its
    /// name. Throws CheckpointError [RT-K9], ConfigError [RT-E48].
    [[nodiscard]] std::string stage(const std::string& wished) const {
        if (!directory_.is_local()) {
            throw ConfigError("RT-E48",
                              detail::concat("checkpoints of a program need a directory that all "
                                             "ranks see, but the storage is ",
                                             directory_.uri(), "; pass a path as --storage"));
        }
        track::require_free_name(track::names_in_use(run_), wished);
        const std::string name = store_->next_name(wished);
        store_->staging().stage(name, 0);
        return name;
    }

    /// Records the report that has begun, with the checkpoint `name`. Returns its line.
    Config record(const Config& metrics, const std::string& name) {
        const Config line = log_.complete(metrics, name);
        steps_.mark(name);
        append(line);
        return line;
    }

    /// Returns what all ranks have staged for `name`, after adding metadata.
    [[nodiscard]] checkpoint::Contents collect(const std::string& name, int ranks,
                                               const Config& metadata) const {
        const checkpoint::Staging& staging = store_->staging();
        checkpoint::Contents contents = staging.collect(name, ranks, {}, std::stop_token());
        if (!metadata.empty()) {
            Checkpoint(staging.directory_of(name, 0)).update_metadata(metadata);
        }
        return contents;
    }

    /// Commits a checkpoint, reported with `line`.
    void commit(const std::string& name, int ranks, checkpoint::Contents contents,
                const Config& line) {
        store_->commit(name, ranks, std::move(contents), line);
        newest_ = store_->checkpoint(name);
        observers_.saved({.checkpoint = name, .line = line});
    }

    /// Removes what was staged.
    void give_up(const std::string& name) noexcept {
        try {
            store_->give_up(name, 0);
        } catch (const std::exception& error) { // the next start removes it
            console::warn("could not remove the files of %s: %s", name.c_str(), error.what());
        }
    }

    /// Call after the last rank has ended. `failure`: why the run has failed.
    void end(track::Ended::How how, const std::optional<Failure>& failure) {
        const bool pauses = how == track::Ended::How::preempted;
        if (failure) {
            write_error(*failure);
        }
        steps_.close();
        if (is_started_ && how != track::Ended::How::failed) {
            observers_.closing({.pauses = pauses});
        }
        directory_.publish_logs();
        if (!is_started_) {
            return;
        }
        std::optional<Result> result;
        if (how == track::Ended::How::finished) {
            result = Result::from_path(directory_.location().path, run_.storage_filesystem);
        }
        observers_.ended({.how = how,
                          .message = failure ? failure->message : "",
                          .result = result ? &*result : nullptr});
    }

private:
    /// A run that has reported nothing may change.
    void require_same(const Config& config) const {
        const std::string file = directory_.path_of(track::params_file);
        const auto& files = directory_.location().filesystem;
        if (!detail::has_left_something(directory_) || !files.exists(file)) {
            return;
        }
        boost::json::value was;
        try {
            was = json::parse(files.read(file));
        } catch (const std::invalid_argument&) { // damaged
            return;
        }
        const boost::json::value is = json::parse(json::serialize(config));
        std::vector<std::string> found;
        detail::add_differences(found, "", &was, &is);
        detail::require_no_differences(directory_, found);
    }

    /// Returns the line of the newest intact checkpoint.
    [[nodiscard]] Config find_newest(const std::vector<std::string>& skip) {
        newest_.reset();
        for (const std::string& name : detail::names_to_resume_from(*store_, skip)) {
            const Checkpoint candidate = store_->checkpoint(name);
            try {
                checkpoint::verify(candidate.as_directory());
            } catch (const CheckpointError& error) {
                store_->reject(name, error.message());
                continue;
            }
            newest_ = candidate;
            break;
        }
        detail::warn_of_damage(*store_, newest_);
        for (const auto& item : store_->listing().committed) {
            if (newest_ && item.name == newest_->path.filename()) {
                return item.metrics;
            }
        }
        return {};
    }

    void note_stop() const {
        if (judge_.stops()) {
            directory_.write(track::stop_file, json::serialize({{"reason", judge_.reason()}}));
        } else {
            directory_.location().filesystem.remove(directory_.path_of(track::stop_file));
        }
    }

    void tell_start() {
        is_started_ = true;
        observers_.started({.name = directory_.name(),
                            .location = directory_.uri(),
                            .directory = directory_.location(),
                            .attempt = attempt_,
                            .resumed = newest_.has_value(),
                            .logs = directory_.log_directory(),
                            .log_size = log_.size(),
                            .step = steps_.step(),
                            .steps_size = steps_.size(),
                            .iteration = log_.iteration(),
                            .checkpoint = newest_ ? newest_->path.filename().string() : "",
                            .checkpoints = store_->listing().committed});
    }

    void append(const Config& line) {
        if (!is_started_) {
            tell_start();
        }
        log_.append(line);
        steps_.reported(log_.iteration());
        observers_.reported({.line = line, .log_size = log_.size()});
    }

    void write_error(const Failure& failure) const {
        try {
            directory_.write(track::error_file, json::serialize({{"code", failure.code.text()},
                                                                 {"message", failure.message}}));
        } catch (const std::exception& error) { // the storage itself may have failed
            console::warn("%s was not written: %s", track::error_file, error.what());
        }
    }

    const RunConfig& run_;
    RunDirectory directory_;
    std::string attempt_;
    std::shared_ptr<track::RunReport> report_;
    track::RunLog log_;
    track::Observers observers_;
    std::optional<checkpoint::Store> store_; ///< of the current start
    track::StepLog<track::StepNumbers> steps_;
    StopJudge judge_; ///< of the current start
    std::optional<Checkpoint> newest_;
    bool has_console_ = false;
    bool is_started_ = false; ///< the observers know of the current start
};

} // namespace rtrain::program
