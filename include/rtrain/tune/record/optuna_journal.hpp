// SPDX-License-Identifier: Apache-2.0
/// @file
/// OptunaJournal: a search as an Optuna journal file, for Optuna's dashboard and tools:
/// `optuna.storages.JournalStorage(JournalFileBackend(path))`. Read by Optuna 5.0.0. Cost tier 1:
/// std and Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/growing_file.hpp>
#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/base/metric.hpp>
#include <rtrain/tune/search/parameters.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace rtrain::tune {

/// One JSON object per line, with an operation code: 0 creates the study, 4 a trial, 5 sets a
/// parameter, 7 an intermediate value, 8 attributes of a trial, 6 the end of a trial.
class OptunaJournal {
public:
    static constexpr const char* file_name = "optuna_journal.log";

    /// Starts a new file with a study of that name.
    OptunaJournal(const std::filesystem::path& experiment, const std::string& study, Goal goal)
        : goal_(std::move(goal)) {
        std::filesystem::remove(experiment / file_name);
        file_ = std::make_unique<storage::GrowingFile>(experiment / file_name);
        write(0, {{"study_name", study}, {"directions", {goal_.mode == ScoreOrder::max ? 2 : 1}}});
    }

    OptunaJournal(const OptunaJournal&) = delete;
    OptunaJournal& operator=(const OptunaJournal&) = delete;
    ~OptunaJournal() {
        try {
            flush();
        } catch (const std::exception&) { // the journal is optional
        }
    }

    /// Writes all previous operations to the file. Throws StorageError [RT-S3].
    void flush() {
        if (!waiting_.empty()) {
            file_->append(waiting_);
            waiting_.clear();
        }
    }

    /// Adds a new trial with the parameters of `space` that `config` has. Optuna has no normal
    /// distribution, so randn is left out.
    void add(const std::string& trial, const Config& config, const Space& space, double time_s) {
        write(4, {{"study_id", 0}, {"datetime_start", date_of(time_s)}});
        const auto id = static_cast<std::int64_t>(ids_.size());
        ids_[trial] = id;
        note(id, "trial_id", trial);
        note(id, "config", json::serialize(config));
        for (const auto& parameter : internal::Parameters(space)) {
            const auto distribution = distribution_of(parameter.domain);
            const auto* const value = find(config, parameter.name);
            const auto number =
                value == nullptr ? std::nullopt : internal::from_json(parameter.domain, *value);
            if (!distribution.empty() && number) {
                write(5, {{"trial_id", id},
                          {"param_name", parameter.name},
                          {"param_value_internal", *number},
                          {"distribution", distribution}});
            }
        }
    }

    /// Records the goal's metric from a report of an added trial.
    void report(const std::string& trial, std::int64_t iteration, double score) {
        write(7, {{"trial_id", ids_.at(trial)}, {"step", iteration}}, "intermediate_value", score);
    }

    /// Records the end of a trial. Completed without a score, or with NaN: failed for Optuna.
    /// Stopped: pruned.
    void end(const std::string& trial, TrialEnd end, std::optional<double> score, double time_s) {
        const bool counts = score && !std::isnan(*score);
        const int state = end == TrialEnd::stopped               ? 2
                          : end == TrialEnd::completed && counts ? 1
                                                                 : 3;
        boost::json::object fields{
            {"trial_id", ids_.at(trial)}, {"state", state}, {"datetime_complete", date_of(time_s)}};
        if (state == 3 || !counts) {
            fields["values"] = nullptr;
            write(6, std::move(fields));
        } else {
            write(6, std::move(fields), "values", *score, true);
        }
    }

private:
    void note(std::int64_t id, const char* name, const std::string& text) {
        write(8, {{"trial_id", id}, {"user_attr", {{name, text}}}});
    }

    void write(int code, boost::json::object fields) {
        boost::json::object line{{"op_code", code}, {"worker_id", "rtrain"}};
        for (auto& item : fields) {
            line[item.key()] = std::move(item.value());
        }
        take(json::serialize(line) + "\n");
    }
    /// The same with an additional number, which Python's reader also accepts as NaN or Infinity.
    void write(int code, boost::json::object fields, const char* name, double value,
               bool in_array = false) {
        boost::json::object line{{"op_code", code}, {"worker_id", "rtrain"}};
        for (auto& item : fields) {
            line[item.key()] = std::move(item.value());
        }
        std::string text = json::serialize(line);
        text.pop_back();
        const std::string number = std::isnan(value)   ? "NaN"
                                   : std::isinf(value) ? (value > 0 ? "Infinity" : "-Infinity")
                                                       : json::serialize(value);
        take(text + ",\"" + name + "\":" + (in_array ? "[" + number + "]" : number) + "}\n");
    }

    void take(const std::string& line) {
        waiting_ += line;
        constexpr std::size_t most = 1 << 16;
        if (waiting_.size() > most) {
            flush();
        }
    }

    /// Optuna's JSON of the distribution; "" where it has none.
    [[nodiscard]] static std::string distribution_of(const Domain& domain) {
        if (const auto* const range = std::get_if<Range>(&domain)) {
            boost::json::object attributes{{"low", range->low}, {"high", range->high}};
            attributes["log"] = range->logarithmic;
            if (range->integer) {
                attributes["low"] = static_cast<std::int64_t>(range->low);
                attributes["high"] = static_cast<std::int64_t>(range->high);
                attributes["step"] = static_cast<std::int64_t>(std::max(1.0, range->step));
            } else {
                attributes["step"] =
                    range->step > 0 ? boost::json::value(range->step) : boost::json::value();
            }
            if (range->logarithmic) { // Optuna has no steps for logarithmic distributions
                attributes["step"] = range->integer ? boost::json::value(1) : boost::json::value();
            }
            return json::serialize(
                {{"name", range->integer ? "IntDistribution" : "FloatDistribution"},
                 {"attributes", std::move(attributes)}});
        }
        boost::json::array choices;
        if (const auto* const choice = std::get_if<Choice>(&domain)) {
            for (const Option& option : choice->options) {
                choices.push_back(
                    option.space() == nullptr
                        ? plain(option.value())
                        : boost::json::value("option " + std::to_string(choices.size())));
            }
        } else if (const auto* const grid = std::get_if<Grid>(&domain)) {
            for (const auto& value : grid->values) {
                choices.push_back(plain(value));
            }
        }
        return choices.empty()
                   ? ""
                   : json::serialize({{"name", "CategoricalDistribution"},
                                      {"attributes", {{"choices", std::move(choices)}}}});
    }
    /// Optuna's choices are neither arrays nor objects.
    [[nodiscard]] static boost::json::value plain(const boost::json::value& value) {
        return value.is_structured() ? boost::json::value(json::serialize(value)) : value;
    }

    /// "2026-11-23T21:25:39.652011+00:00"
    [[nodiscard]] static std::string date_of(double time_s) {
        const auto seconds = static_cast<std::time_t>(std::floor(time_s));
        std::tm parts{};
        ::gmtime_r(&seconds, &parts);
        char date[32];
        std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
        char fraction[16];
        std::snprintf(fraction, sizeof fraction, ".%06d",
                      static_cast<int>((time_s - std::floor(time_s)) * 1e6));
        return std::string(date) + fraction + "+00:00";
    }

    Goal goal_;
    std::unique_ptr<storage::GrowingFile> file_;
    std::string waiting_;                     ///< for the file
    std::map<std::string, std::int64_t> ids_; ///< Optuna's id of each trial
};

} // namespace rtrain::tune
