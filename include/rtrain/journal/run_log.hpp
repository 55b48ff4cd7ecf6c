// SPDX-License-Identifier: Apache-2.0
/// @file
/// The journal of a run: result.json (one line of JSON per report), with Ray Train's field names,
/// and params.json.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/duration.hpp>
#include <rtrain/base/text/random_digits.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/process/os/machine.hpp>
#include <rtrain/storage/file/file.hpp>

#include <boost/json/object.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

namespace rtrain::track {

/// Writes indented JSON with sorted keys.
inline void write_pretty(std::ostream& out, const boost::json::value& value,
                         const std::string& indent = "") {
    const auto* const object = value.if_object();
    if (object == nullptr || object->empty()) {
        out << json::serialize(value);
        return;
    }
    std::vector<std::string> keys;
    for (const auto& item : *object) {
        keys.emplace_back(item.key());
    }
    std::sort(keys.begin(), keys.end());
    out << "{\n";
    for (std::size_t i = 0; i < keys.size(); ++i) {
        out << indent << "  " << json::serialize(boost::json::value(keys[i])) << ": ";
        write_pretty(out, object->at(keys[i]), indent + "  ");
        out << (i + 1 < keys.size() ? ",\n" : "\n");
    }
    out << indent << '}';
}

/// Writes the journal of one run, line by line, and decides which lines are valid when the run
/// resumes. Used by rank 0 only.
class RunLog {
public:
    using Clock = std::chrono::steady_clock;

    static constexpr const char* total_time_field = "time_total_s";
    static constexpr const char* checkpoint_field = "checkpoint_dir_name";
    /// Fields that complete() adds.
    static constexpr std::array filled_fields{"timestamp",
                                              checkpoint_field,
                                              "should_checkpoint",
                                              "done",
                                              iteration_field,
                                              "trial_id",
                                              "date",
                                              "time_this_iter_s",
                                              "time_total_s",
                                              "pid",
                                              "hostname",
                                              "config",
                                              "time_since_restore",
                                              "iterations_since_restore"};

    /// True if complete() adds a field of that name.
    [[nodiscard]] static bool fills_in(std::string_view name) {
        return std::ranges::find(filled_fields, name) != filled_fields.end();
    }

    RunLog(std::filesystem::path run_directory, Config config)
        : directory_(std::move(run_directory)), config_(std::move(config)),
          config_text_(json::serialize(config_)) {}

    /// Starts the log, or resumes it after the report with the line `last`. Later reports will be
    /// made again: they move to superseded.json. If a crash occurred between a checkpoint and its
    /// line, the line is added. A log in which other lines are missing is set aside, and its
    /// readable lines are kept: returns the new name of the old file, so that a storage service
    /// gets it. `each` receives the valid reports, oldest first.
    std::optional<std::string> open(const Config* last,
                                    const std::function<void(const Config&)>& each) {
        const auto iteration = last != nullptr ? number_of(*last) : 0;
        const double total_seconds =
            last != nullptr ? last->at(total_time_field).to_number<double>() : 0;
        std::string kept;
        std::string superseded;
        std::int64_t written = 0;
        std::int64_t missing = iteration;
        const ReportLines lines = read_results(directory_ / results_file, iteration);
        for (const Config& report : lines.reports) {
            const bool keep = number_of(report) <= iteration;
            if (keep && number_of(report) <= written) {
                continue; // a duplicate
            }
            (keep ? kept : superseded) += json::serialize(report) + "\n";
            if (keep) {
                each(report);
            }
            written = keep ? number_of(report) : written;
            missing -= keep ? 1 : 0;
        }
        if (last != nullptr && written < iteration) { // iteration 0: not reported yet
            kept += json::serialize(*last) + "\n";
            each(*last);
            --missing;
        }
        auto set_aside = missing > 0 ? set_aside_results(missing, lines.damage) : std::nullopt;
        if (!superseded.empty()) {
            const auto file = directory_ / superseded_file;
            std::string text = std::filesystem::exists(file) ? storage::read_file(file) : "";
            text.resize(text.rfind('\n') + 1); // a crash can truncate the last line
            storage::replace_file(file, text + superseded);
        }
        results_.reset();
        if (kept.empty()) {
            storage::replace_file_unsynced(directory_ / results_file, "");
        } else {
            storage::replace_file(directory_ / results_file, kept);
        }
        results_size_ = kept.size();
        results_whole_ = true;
        last_line_ = last != nullptr && iteration > 0 ? *last : Config{};
        iteration_ = resumed_at_ = iteration;
        total_seconds_ = resumed_seconds_ = total_seconds;
        last_report_ = Clock::now();
        auto params = detail::strict(std::ostringstream());
        write_pretty(params, config_);
        storage::replace_file(directory_ / params_file, params.str() + "\n");
        return set_aside;
    }

    /// Number of the newest valid report.
    [[nodiscard]] std::int64_t iteration() const noexcept { return iteration_; }
    /// Bytes of result.json up to that report.
    [[nodiscard]] std::uint64_t size() const noexcept { return results_size_; }

    /// Seconds of training of all starts, up to now.
    [[nodiscard]] double total_seconds() const { return total_seconds_at(Clock::now()); }
    /// The time at which total_seconds() reaches `seconds`.
    [[nodiscard]] Clock::time_point when_total_is(double seconds) const {
        return last_report_ + detail::duration_of(seconds - total_seconds_);
    }

    /// Sets the report's time to now, however long its line waits.
    void begin_report() {
        now_ = Clock::now();
        wall_ = std::time(nullptr);
    }

    /// The complete line of the report that has begun: the user's metrics and the fields that Ray
    /// fills in. Throws ConfigError [RT-C10] if a metric has the name of such a field.
    [[nodiscard]] Config complete(Config metrics, std::optional<std::string> checkpoint) const {
        for (const char* reserved : filled_fields) {
            if (metrics.contains(reserved)) {
                throw ConfigError("RT-C10", detail::concat("a metric has the name \"", reserved,
                                                           "\", which rtrain fills in; rename "
                                                           "the metric"));
            }
        }
        const double seconds = std::chrono::duration<double>(now_ - last_report_).count();
        const double total = total_seconds_at(now_);
        const std::int64_t iteration = iteration_ + 1;
        char date[32] = {};
        std::tm local{};
        std::strftime(date, sizeof date, "%Y-%m-%d_%H-%M-%S", localtime_r(&wall_, &local));
        metrics["timestamp"] = static_cast<std::int64_t>(wall_);
        metrics[checkpoint_field] = checkpoint ? boost::json::value(*checkpoint) : nullptr;
        if (checkpoint) {
            metrics["should_checkpoint"] = true;
        }
        metrics["done"] = false;
        metrics[iteration_field] = iteration;
        metrics["trial_id"] = directory_.filename().string();
        metrics["date"] = date;
        metrics["time_this_iter_s"] = seconds;
        metrics[total_time_field] = total;
        metrics["pid"] = static_cast<std::int64_t>(::getpid());
        metrics["hostname"] = storage::host_name();
        metrics["config"] = config_;
        metrics["time_since_restore"] = total - resumed_seconds_;
        metrics["iterations_since_restore"] = iteration - resumed_at_;
        return metrics;
    }

    /// For a checkpoint without a report: the line of the last report, with the current total time;
    /// before the first report, a line without metrics.
    [[nodiscard]] Config last_line(const std::string& checkpoint) const {
        Config line = last_line_;
        if (line.empty()) {
            line = {{iteration_field, iteration_}, {"config", config_}};
        }
        line[total_time_field] = total_seconds();
        line[checkpoint_field] = checkpoint;
        return line;
    }

    /// Appends a completed line; the next one is counted from it. On a failed write the log is
    /// unchanged. Throws StorageError [RT-S18] if earlier lines are gone.
    void append(const Config& line) {
        const std::string text = text_of(line) + "\n";
        const auto file = directory_ / results_file;
        require_written(file);
        if (!results_whole_) { // after a failed fsync, the contents of its blocks on disk are
                               // unknown
            results_.reset();
            storage::replace_file(file, storage::read_file(file).substr(0, results_size_));
        }
        results_whole_ = false;
        if (!results_ || !results_->is_at(file)) { // or the file was replaced
            results_.reset();
            results_.emplace(file, storage::OutputFile::Mode::append);
        }
        results_->write(text);
        if (line.contains("should_checkpoint")) {
            results_->sync(); // as durable as the checkpoint that it belongs to
        }
        results_size_ += text.size();
        results_whole_ = true;
        iteration_ = number_of(line);
        total_seconds_ = line.at(total_time_field).to_number<double>();
        last_report_ = now_;
        last_line_ = line;
    }

private:
    /// Like json::serialize(), but with the configuration, which is the same in each line, last.
    [[nodiscard]] std::string text_of(const Config& line) const {
        Config others;
        others.reserve(line.size());
        for (const auto& item : line) {
            if (item.key() != "config") {
                others.emplace(item.key(), item.value());
            }
        }
        std::string text = json::serialize(others);
        text.pop_back();
        return text.append(",\"config\":").append(config_text_) += '}';
    }

    [[nodiscard]] double total_seconds_at(Clock::time_point now) const {
        return total_seconds_ + std::chrono::duration<double>(now - last_report_).count();
    }

    /// Throws if lines that this process has written are gone.
    void require_written(const std::filesystem::path& file) const {
        std::error_code error;
        const auto size = std::filesystem::file_size(file, error);
        if (error || size < results_size_) {
            throw StorageError(
                "RT-S18",
                detail::concat(file.string(), error ? " is missing" : " was truncated",
                               " during the run, and reports are lost; if a checkpoint exists, run "
                               "the same command to resume from it"));
        }
    }

    /// Warns that reports are missing. Keeps a copy of the incomplete log.
    [[nodiscard]] std::optional<std::string> set_aside_results(std::int64_t missing,
                                                               const std::string& damage) const {
        const auto file = directory_ / results_file;
        std::optional<std::string> kept_as;
        if (std::filesystem::exists(file)) {
            const std::time_t now = std::time(nullptr);
            char date[32] = {};
            std::tm local{};
            std::strftime(date, sizeof date, "%Y-%m-%d_%H-%M-%S", localtime_r(&now, &local));
            kept_as = detail::concat(results_file, ".damaged-", date, '-', detail::random_digits());
            storage::replace_file(directory_ / *kept_as, storage::read_file(file));
        }
        const std::string what =
            kept_as ? detail::concat(" is damaged", damage.empty() ? "" : " in " + damage,
                                     "; it is kept as ", *kept_as)
                    : std::string(" is missing");
        console::warn("%s%s; the run resumes from its checkpoint without %lld of its reports",
                      file.c_str(), what.c_str(), static_cast<long long>(missing));
        return kept_as;
    }

    std::filesystem::path directory_;
    Config config_;
    std::string config_text_;
    Config last_line_;
    std::optional<storage::OutputFile> results_; ///< open for the next line
    std::size_t results_size_ = 0; ///< bytes of result.json, without the rest of a failed append
    bool results_whole_ = true;    ///< false: an append has failed
    std::int64_t iteration_ = 0;
    std::int64_t resumed_at_ = 0;
    double total_seconds_ = 0;
    double resumed_seconds_ = 0;
    Clock::time_point last_report_ = Clock::now();
    Clock::time_point now_ = Clock::now(); ///< time of the current report
    std::time_t wall_ = 0;                 ///< the same as wall-clock time
};

} // namespace rtrain::track
