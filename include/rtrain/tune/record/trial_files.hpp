// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrialFiles: the files in the directory of a plain function's trial, as Ray writes them:
/// params.json, result.json, progress.csv. A trial of a trainer is a run, which has these files
/// anyway.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/growing_file.hpp>
#include <rtrain/track/files/csv.hpp>
#include <rtrain/tune/record/exploits.hpp>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

namespace rtrain::tune {

class TrialFiles {
public:
    /// Creates the directory, or continues in it. `reports`: those before the trial's state; later
    /// ones will be repeated and are removed. `taken_over`: how often the trial has started over.
    /// Throws StorageError.
    TrialFiles(std::filesystem::path directory, std::string trial, Config config,
               std::int64_t reports = 0, int taken_over = 0)
        : directory_(std::move(directory)), trial_(std::move(trial)),
          csv_(std::make_unique<track::Csv>(track::progress_file)) {
        storage::create_directories(directory_);
        const auto results = directory_ / track::results_file;
        std::string kept;
        for (const Config& report : track::read_results(results, 0).reports) {
            if (internal::counts(report, taken_over, reports)) {
                kept += json::serialize(report) + "\n";
            }
        }
        storage::replace_file(results, kept);
        results_ = std::make_unique<storage::GrowingFile>(results);
        track::RunInfo info;
        info.directory = directory_;
        csv_->start(info);
        csv_->rewind({.iteration = all_reports});
        configure(std::move(config));
    }

    /// Changes the configuration of further reports, under Pbt.
    void configure(Config config) {
        config_ = std::move(config);
        auto text = rtrain::detail::strict(std::ostringstream());
        track::write_pretty(text, config_);
        storage::replace_file(directory_ / track::params_file, text.str() + "\n");
    }

    /// `report` has "training_iteration"; "trial_id" and "config" are added. Readers see only
    /// complete lines.
    void append(Config report) {
        report["trial_id"] = trial_;
        report["config"] = config_;
        report = json::finite(std::move(report)).as_object();
        const std::string text = json::serialize(report);
        results_->append(text + "\n");
        csv_->write({.number = all_reports, .values = report, .text = text});
    }

    /// On return, all reports are durable.
    void sync() { results_->sync(); }

private:
    /// Report numbers need not ascend.
    static constexpr auto all_reports = std::numeric_limits<std::int64_t>::max();

    std::filesystem::path directory_;
    std::string trial_;
    Config config_;
    std::unique_ptr<storage::GrowingFile> results_;
    std::unique_ptr<track::Csv> csv_;
};

} // namespace rtrain::tune
