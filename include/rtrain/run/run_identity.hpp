// SPDX-License-Identifier: Apache-2.0
/// @file
/// RunIdentity: checks whether a start continues the run of the same name, according to
/// trainer.json.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/run/config_differences.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/run/options/restore.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/storage/filesystem.hpp>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Returns the rows and content of a data set, which it opens; null if unknown.
[[nodiscard]] inline boost::json::value fingerprint_of(const data::Dataset& dataset) {
    try {
        if (dataset.uncounted()) {
            return nullptr;
        }
        return {{"rows", dataset.size()}, {"content", dataset.content()}};
    } catch (const std::exception&) { // reading it reports the error
        return nullptr;
    }
}

/// Rank 0's checks and fields in trainer.json.
class RunIdentity {
public:
    /// `function`: the type of the training function; "" if unknown. Arguments outlive this object.
    RunIdentity(const RunDirectory& directory, const TrainerOptions& options, std::string function)
        : directory_(directory), options_(options), function_(std::move(function)) {}

    /// Throws ConfigError [RT-C50] if an earlier start under this name left reports or checkpoints
    /// and was of a different run. Logs if that run has finished.
    void require_same() {
        const boost::json::object saved = this->saved();
        if (saved.empty() || !has_left_something(directory_)) {
            return;
        }
        if (options_.run.resume != Resume::always) {
            require_same(saved);
            if (const auto* const prints = saved.if_contains(fingerprints_field)) {
                fingerprints_ = prints->as_object();
            }
        }
        if (const auto* const date = saved.if_contains(finished_field)) {
            finished_ = date->as_string().c_str();
            console::say("the run \"%s\" already finished on %s; to train it again, set "
                         "RunConfig::resume = Resume::never, or use a different name",
                         directory_.name().c_str(), finished_.c_str());
        }
    }

    /// The run continues after it finished, for example because it now has more epochs.
    void forget_finished() noexcept { finished_.clear(); }

    /// The training function reads a data set; data sets never read do not count.
    void uses(const std::string& dataset, std::int64_t rows, std::uint64_t content) {
        const boost::json::object print{{"rows", rows}, {"content", content}};
        const auto* const known = fingerprints_.if_contains(dataset);
        if (options_.datasets.contains(dataset) &&
            (known == nullptr || known->as_object() != print)) {
            fingerprints_[dataset] = print;
            is_new_ = true;
        }
    }

    /// Call before writing anything of the run: records its data sets.
    void note_datasets() {
        if (std::exchange(is_new_, false)) {
            write();
        }
    }

    void write(bool finished = false) const {
        boost::json::object text = trainer_json(options_);
        text[function_field] = function_;
        text[fingerprints_field] = fingerprints_;
        if (finished) {
            text[finished_field] = finished_.empty() ? date_now() : finished_;
        }
        directory_.write(track::trainer_file, json::serialize(text));
    }

private:
    static constexpr const char* function_field = "function";
    static constexpr const char* fingerprints_field = "fingerprints";
    static constexpr const char* finished_field = "finished";

    /// Empty without a readable file.
    [[nodiscard]] boost::json::object saved() const {
        const storage::Location& at = directory_.location();
        const std::string file = directory_.path_of(track::trainer_file);
        try {
            if (!at.filesystem.exists(file)) {
                return {};
            }
            auto saved = json::parse(at.filesystem.read(file)).as_object();
            (void)trainer_options(saved);
            return saved;
        } catch (const TransientStorageError&) {
            throw;
        } catch (const std::exception&) {
            return {};
        }
    }

    void require_same(const boost::json::object& saved) const {
        std::vector<std::string> found;
        const boost::json::value config = json::parse(json::serialize(options_.config));
        add_differences(found, "", saved.if_contains("config"), &config);
        const auto* const function = saved.if_contains(function_field);
        if (function != nullptr && !function_.empty() && !function->as_string().empty() &&
            function->as_string() != function_) {
            found.push_back(concat("the training function was ", function->as_string().c_str(),
                                   " and is ", function_));
        }
        if (const auto* const prints = saved.if_contains(fingerprints_field)) {
            for (const auto& item : prints->as_object()) {
                add_dataset(found, std::string(item.key()), item.value());
            }
        }
        require_no_differences(directory_, found);
    }

    /// `was`: the fingerprint of the data set in an earlier start.
    void add_dataset(std::vector<std::string>& found, const std::string& name,
                     const boost::json::value& was) const {
        const auto dataset = options_.datasets.find(name);
        if (dataset == options_.datasets.end()) {
            found.push_back(concat("the data set \"", name, "\" is missing now"));
            return;
        }
        const auto is = fingerprint_of(dataset->second);
        if (is.is_null() || was == is) {
            return;
        }
        const auto number = [](const boost::json::value& print, const char* field) {
            return print.at(field).to_number<std::uint64_t>();
        };
        if (number(was, "rows") != number(is, "rows")) {
            found.push_back(concat("the data set \"", name, "\" had ", number(was, "rows"),
                                   " rows and has ", number(is, "rows")));
        } else if (number(was, "content") != 0 && number(is, "content") != 0 &&
                   number(was, "content") != number(is, "content")) {
            found.push_back(concat("the data set \"", name,
                                   "\" has the same number of rows, but different content"));
        }
    }

    const RunDirectory& directory_;
    const TrainerOptions& options_;
    std::string function_;
    boost::json::object fingerprints_; ///< data sets that the run uses
    bool is_new_ = false;              ///< a data set was added
    std::string finished_;             ///< when an earlier start finished; empty: never
};

} // namespace rtrain::detail
