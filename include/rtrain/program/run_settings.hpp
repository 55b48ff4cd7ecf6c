// SPDX-License-Identifier: Apache-2.0
/// @file
/// The options of `rtrain run` that have a value.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/known_names.hpp>
#include <rtrain/base/text/number_in.hpp>
#include <rtrain/program/options/run_options.hpp>
#include <rtrain/program/options/tracker_options.hpp>
#include <rtrain/program/program_options.hpp>
#include <rtrain/tune/resources/this_machine.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::program::internal {

[[nodiscard]] inline ConfigError wrong_value(const std::string& option, const std::string& value,
                                             const std::string& expected) {
    return {"RT-E9", detail::concat(option, " is \"", value, "\"; expected ", expected)};
}

[[nodiscard]] inline int count_in(const std::string& option, const std::string& value, int least) {
    const auto number = detail::number_in<int>(value);
    if (!number || *number < least) {
        throw wrong_value(option, value, detail::concat("a whole number from ", least));
    }
    return *number;
}

[[nodiscard]] inline double amount_in(const std::string& option, const std::string& value) {
    const auto number = detail::number_in<double>(value);
    if (!number || !(*number >= 0)) {
        throw wrong_value(option, value, "a number from 0");
    }
    return *number;
}

/// "4", "2:4", or torchrun's "auto", "gpu" and "cpu". Throws ConfigError [RT-E8].
[[nodiscard]] inline NumWorkers workers_in(const std::string& option, const std::string& value) {
    const auto cores = static_cast<int>(detail::cores_of_this_machine().size());
    const int gpus = detail::gpus_of_this_machine();
    if (value == "cpu" || (value == "auto" && gpus == 0)) {
        return std::max(1, cores);
    }
    if (value == "gpu" || value == "auto") {
        return std::max(1, gpus);
    }
    const std::size_t colon = std::min(value.find(':'), value.size());
    const auto min = detail::number_in<int>(std::string_view(value).substr(0, colon));
    const auto max = colon == value.size()
                         ? min
                         : detail::number_in<int>(std::string_view(value).substr(colon + 1));
    if (!min || !max || *min < 1 || *max < *min) {
        throw ConfigError("RT-E8", detail::concat(option, " is \"", value,
                                                  "\"; expected a number of ranks such as 4, or a "
                                                  "range such as 2:4"));
    }
    return {*min, *max};
}

/// Splits "name=value". Throws ConfigError [RT-E9].
[[nodiscard]] inline std::pair<std::string, std::string>
pair_in(const std::string& option, const std::string& value, const std::string& expected) {
    const auto equals = value.find('=');
    if (equals == std::string::npos || equals == 0) {
        throw wrong_value(option, value, expected);
    }
    return {value.substr(0, equals), value.substr(equals + 1)};
}

/// The value is JSON, or otherwise a text: lr=0.1, optimizer=adam.
inline void add_entry(Config& config, const std::string& value) {
    const auto [name, text] = pair_in("--config", value, "KEY=VALUE, for example lr=0.1");
    boost::json::value& entry = config[name];
    try {
        entry = json::parse(text);
    } catch (const std::exception&) {
        entry = text;
    }
}

/// Scripts may change their directory, so the path becomes absolute.
inline void add_dataset(std::map<std::string, std::string>& datasets, const std::string& value) {
    const std::string expected = "NAME=PATH, for example train=data/train.parquet";
    const auto [name, path] = pair_in("--dataset", value, expected);
    if (path.empty()) {
        throw wrong_value("--dataset", value, expected);
    }
    datasets[name] = std::filesystem::absolute(path).lexically_normal().string();
}

[[nodiscard]] inline Rendezvous rendezvous_in(const std::string& value) {
    const auto meeting = meeting_names.parse(value);
    if (!meeting) {
        throw wrong_value("--rendezvous", value, "torch, tensorflow, mpi or none");
    }
    switch (*meeting) {
    case Meeting::torch:
        return rendezvous::Torch{};
    case Meeting::tensorflow:
        return rendezvous::TensorFlow{};
    case Meeting::mpi:
        return rendezvous::Mpi{};
    case Meeting::none:
        break;
    }
    return rendezvous::None{};
}

/// "torch,transformers".
[[nodiscard]] inline std::vector<std::string> modules_in(const std::string& option,
                                                         const std::string& value) {
    std::vector<std::string> names;
    for (std::size_t begin = 0; begin <= value.size();) {
        const std::size_t end = std::min(value.find(',', begin), value.size());
        names.push_back(value.substr(begin, end - begin));
        begin = end + 1;
    }
    if (std::ranges::find(names, "") != names.end()) {
        throw wrong_value(option, value, "names of Python modules, for example torch,numpy");
    }
    return names;
}

/// Handles the value of an option.
using Setting =
    std::function<void(ProgramOptions&, const std::string& option, const std::string& value)>;

using Settings = std::map<std::string, Setting, std::less<>>;

/// Options for what is kept of a run.
[[nodiscard]] inline Settings settings_of_results() {
    using Options = ProgramOptions;
    using Text = std::string;
    return {{"--resume",
             [](Options& run, const Text&, const Text& value) { run.run.resume = Resume(value); }},
            {"--num-to-keep",
             [](Options& run, const Text& option, const Text& value) {
                 run.run.checkpoint.num_to_keep = count_in(option, value, 1);
             }},
            {"--score", [](Options& run, const Text&,
                           const Text& value) { run.run.checkpoint.score_attribute = value; }},
            {"--score-order",
             [](Options& run, const Text&, const Text& value) {
                 run.run.checkpoint.score_order = ScoreOrder(value);
             }},
            {"--tracker",
             [](Options& run, const Text& option, const Text& value) {
                 if (std::ranges::find(tracker_names, value) == tracker_names.end()) {
                     throw wrong_value(option, value, "one of " + detail::listed(tracker_names));
                 }
                 run.run.trackers.push_back(tracker_in(boost::json::value(value), option));
             }},
            {"--options", [](Options& run, const Text&, const Text& value) {
                 read_run_options(value, run.run);
             }}};
}

[[nodiscard]] inline Settings settings_of_starts() {
    using Options = ProgramOptions;
    using Text = std::string;
    return {{"-n", [](Options& run, const Text& option,
                      const Text& value) { run.scaling.num_workers = workers_in(option, value); }},
            {"--max-restarts",
             [](Options& run, const Text& option, const Text& value) {
                 run.run.failure.max_failures = count_in(option, value, -1);
             }},
            {"--name", [](Options& run, const Text&, const Text& value) { run.run.name = value; }},
            {"--storage",
             [](Options& run, const Text&, const Text& value) { run.run.storage_path = value; }},
            {"--config",
             [](Options& run, const Text&, const Text& value) { add_entry(run.config, value); }},
            {"--dataset", [](Options& run, const Text&,
                             const Text& value) { add_dataset(run.datasets, value); }},
            {"--preload", [](Options& run, const Text& option,
                             const Text& value) { run.preload = modules_in(option, value); }},
            {"--rendezvous", [](Options& run, const Text&,
                                const Text& value) { run.rendezvous = rendezvous_in(value); }},
            {"--hosts",
             [](Options& run, const Text&, const Text& value) {
                 run.scaling.mpirun_args = {"--host", value};
             }},
            {"--threads",
             [](Options& run, const Text& option, const Text& value) {
                 run.scaling.threads_per_worker = count_in(option, value, 1);
             }},
            {"--gpus-per-worker",
             [](Options& run, const Text& option, const Text& value) {
                 run.scaling.gpus_per_worker = amount_in(option, value);
                 run.scaling.use_gpu = run.scaling.gpus_per_worker > 0;
             }},
            {"--grace",
             [](Options& run, const Text& option, const Text& value) {
                 run.run.failure.preemption_grace_s = amount_in(option, value);
             }},
            {"--hang-idle",
             [](Options& run, const Text& option, const Text& value) {
                 run.run.failure.hang.idle_s = amount_in(option, value);
                 run.run.failure.hang.enabled = run.run.failure.hang.idle_s > 0;
             }},
            {"--backoff", [](Options& run, const Text& option, const Text& value) {
                 run.run.failure.backoff_s = amount_in(option, value);
             }}};
}

[[nodiscard]] inline const Settings& settings() {
    static const Settings all = [] {
        Settings both = settings_of_starts();
        both.merge(settings_of_results());
        return both;
    }();
    return all;
}

} // namespace rtrain::program::internal
