// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrialTask: the input of the process that drives one trial of a trainer, and of its ranks: a file
/// in the session's directory, named by launch/session.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/run/options/option_json.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/run/options/restore.hpp>
#include <rtrain/storage/file/file.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace rtrain::tune {

struct TrialTask {
    int fit = 0;                          ///< the number of the search's fit() call
    std::string socket{};                 ///< where rank 0 connects to the search
    std::string directory{};              ///< of the trial and its run
    Config config{};                      ///< of the trial
    std::int64_t known = 0;               ///< reports of this run that the search already has
    std::string resume_from{};            ///< a checkpoint to start from; empty: none
    std::optional<double> time_limit_s{}; ///< see Assignment

    [[nodiscard]] static TrialTask read(const std::filesystem::path& file) {
        return from(json::parse(storage::read_file(file)).as_object());
    }
    [[nodiscard]] static TrialTask from(const boost::json::object& saved) {
        const auto text = [&](const char* name) { return std::string(saved.at(name).as_string()); };
        const auto* const limit = saved.if_contains("time_limit_s");
        return {.fit = saved.at("fit").to_number<int>(),
                .socket = text("socket"),
                .directory = text("directory"),
                .config = saved.at("config").as_object(),
                .known = saved.at("known").to_number<std::int64_t>(),
                .resume_from = text("resume_from"),
                .time_limit_s = limit != nullptr ? json::number(*limit) : std::nullopt};
    }
    [[nodiscard]] boost::json::object to_json() const {
        boost::json::object task{
            {"fit", fit},       {"socket", socket}, {"directory", directory},
            {"config", config}, {"known", known},   {"resume_from", resume_from}};
        if (time_limit_s) {
            task["time_limit_s"] = *time_limit_s;
        }
        return task;
    }
};

namespace internal {

/// Merges `from` into `into`, object by object.
inline void merge(Config& into, const Config& from) {
    for (const auto& item : from) {
        auto* const there = into.if_contains(item.key());
        if (there != nullptr && there->is_object() && item.value().is_object()) {
            merge(there->get_object(), item.value().get_object());
        } else {
            into[item.key()] = item.value();
        }
    }
}

inline void set_scaling(ScalingConfig& scaling, const std::string& name,
                        const boost::json::value& value) {
    using rtrain::detail::concat;
    try {
        if (name == "num_workers" && value.is_number()) {
            scaling.num_workers = value.to_number<int>();
        } else if (rtrain::detail::json_of(scaling).as_object().contains(name)) {
            rtrain::detail::read_json(Config{{name, value}}, scaling);
        } else {
            throw ConfigError("RT-U112", concat("the space has \"scaling/", name,
                                                "\", but ScalingConfig has no such option"));
        }
    } catch (const ConfigError&) {
        throw;
    } catch (const std::exception& error) {
        throw ConfigError("RT-U112", concat("the space gives \"scaling/", name, "\" the value ",
                                            json::serialize(value), ": ", error.what()));
    }
}

inline void set_dataset(data::Datasets& datasets, const std::string& name,
                        const boost::json::value& value, const data::Datasets& known) {
    const auto* const chosen = value.if_string();
    const auto found = chosen != nullptr ? known.find(std::string(*chosen)) : known.end();
    if (found == known.end()) {
        throw ConfigError(
            "RT-U112", rtrain::detail::concat("the space gives \"datasets/", name, "\" the value ",
                                              json::serialize(value),
                                              "; give the name of one of TunerOptions::datasets"));
    }
    datasets.insert_or_assign(name, found->second);
}

} // namespace internal

/// The options of a trial: the trainer's, changed by the trial's configuration. "scaling/x" sets an
/// option of ScalingConfig, "datasets/x" selects the data set of `known` that replaces x; all else
/// is merged into TrainerOptions::config, object by object. Throws ConfigError [RT-U112] for an
/// invalid name or value.
[[nodiscard]] inline TrainerOptions trial_options(TrainerOptions options, const Config& config,
                                                  const data::Datasets& known) {
    for (const auto& item : config) {
        const std::string_view key = item.key();
        const auto* const several = item.value().if_object();
        if (key == "scaling" && several != nullptr) {
            for (const auto& option : *several) {
                internal::set_scaling(options.scaling, std::string(option.key()), option.value());
            }
        } else if (key == "datasets" && several != nullptr) {
            for (const auto& one : *several) {
                internal::set_dataset(options.datasets, std::string(one.key()), one.value(), known);
            }
        } else {
            internal::merge(options.config, Config{{key, item.value()}});
        }
    }
    rtrain::detail::check_options(options);
    return options;
}

} // namespace rtrain::tune
