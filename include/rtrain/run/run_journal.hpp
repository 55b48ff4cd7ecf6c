// SPDX-License-Identifier: Apache-2.0
/// @file
/// RunJournal: rank 0's side of a run. What is written down about it, in which order, and who hears
/// of it. Nothing in it is collective.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/staging.hpp>
#include <rtrain/checkpoint/store.hpp>
#include <rtrain/checkpoint/user_files.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/observers.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/run/options.hpp>
#include <rtrain/run/report_options.hpp>
#include <rtrain/run/restore.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/run/validations.hpp>

#include <optional>
#include <string>
#include <utility>

namespace rtrain {

/// A line of result.json comes before the checkpoint that it belongs to: should the program die in
/// between, the report is behind the newest checkpoint and will be made again. Observers hear of
/// either once it is written.
class RunJournal {
public:
    /// What is given outlives this object.
    RunJournal(RunDirectory& directory, checkpoint::Store& store, const TrainerOptions& options,
               launch::FitCall call, track::Observers& observers)
        : directory_(directory), store_(store), options_(options), observers_(observers),
          log_(directory.log_directory(), options.config),
          validations_(store, options.validation, call, observers) {}

    /// Goes on behind the checkpoint `own` of this run; "" for none.
    void open(const std::string& own) {
        Config last;
        for (const auto& item : store_.listing().committed) {
            last = own == item.name ? item.metrics : last;
        }
        if (auto set_aside = log_.open(own.empty() ? nullptr : &last)) {
            directory_.add_log(std::move(*set_aside));
        }
        directory_.location().filesystem.write(directory_.path_of(detail::trainer_file),
                                               detail::trainer_text(options_));
    }

    /// All ranks have taken the run up, from the checkpoint of this name. Forgets how the attempt
    /// before has failed, and has validated what it has left waiting.
    void begin(const std::string& from) {
        observers_.started({.logs = directory_.log_directory(),
                            .iteration = log_.iteration(),
                            .checkpoint = from,
                            .checkpoints = store_.listing().committed});
        directory_.location().filesystem.remove(directory_.path_of(Result::error_file));
        validations_.take_up();
    }

    /// The run's directory is still that which this attempt has taken.
    void require_current() const {
        directory_.require_same();
        store_.staging().require_current();
    }

    /// A report without a checkpoint. It grows in a local directory.
    void record(const Config& metrics) {
        if (directory_.is_local()) {
            require_current();
        }
        append(log_.complete(metrics, std::nullopt), false);
    }

    /// Before ranks write the checkpoint `name`: the line that belongs to it. `metrics`: of the
    /// report that it is made in, or null.
    [[nodiscard]] Config announce(const std::string& name, const Config* metrics,
                                  const ReportOptions& options) {
        store_.set_validation(name, validations_.wanted(options), false);
        Config line = metrics != nullptr ? log_.complete(*metrics, name) : log_.last_line(name);
        write_metadata(Checkpoint(store_.staging().directory_of(name, 0)), options);
        if (metrics != nullptr) {
            append(line, asks_for_validation(options));
        }
        return line;
    }

    /// A checkpoint whose files are in their place.
    void commit_in_place(const std::string& name, const Config& metrics,
                         const ReportOptions& options) {
        const Checkpoint there = store_.checkpoint(name);
        store_.set_validation(name, validations_.wanted(options), true);
        const Config line = log_.complete(metrics, name);
        write_metadata(there, options);
        auto contents = checkpoint::unlisted_files(there.as_directory(), {});
        append(line, asks_for_validation(options));
        store_.commit_in_place(name, std::move(contents), line);
        committed(name, line);
    }

    /// In the thread that has committed it.
    void committed(const std::string& name, const Config& line) {
        observers_.saved({.checkpoint = name, .line = line});
        validations_.submit(name);
        directory_.publish_logs();
    }

    /// For at most that many seconds.
    void wait_for_validations(std::optional<double> timeout_s) { validations_.wait(timeout_s); }

private:
    void append(const Config& line, bool asks_for_validation) {
        log_.append(line);
        observers_.reported({.line = line, .asks_for_validation = asks_for_validation});
    }

    void write_metadata(const Checkpoint& checkpoint, const ReportOptions& options) const {
        Config metadata = options_.metadata;
        for (const auto& item : options.metadata) {
            metadata[item.key()] = item.value();
        }
        if (!metadata.empty()) {
            checkpoint.update_metadata(metadata);
        }
    }

    RunDirectory& directory_;
    checkpoint::Store& store_;
    const TrainerOptions& options_;
    track::Observers& observers_;
    track::RunLog log_;
    Validations validations_; ///< last: its thread uses the others
};

} // namespace rtrain
