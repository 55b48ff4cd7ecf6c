// SPDX-License-Identifier: Apache-2.0
/// @file
/// What Trainer::restore() knows about a run: trainer.json in its directory, and how a trainer is
/// made from it again.
#pragma once

#include <rtrain/config.hpp>
#include <rtrain/error.hpp>
#include <rtrain/json.hpp>
#include <rtrain/options.hpp>
#include <rtrain/storage/locate.hpp>

#include <boost/json/array.hpp>
#include <boost/json/value_from.hpp>
#include <boost/json/value_to.hpp>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::detail {

inline constexpr const char* trainer_file = "trainer.json";

[[nodiscard]] inline boost::json::array dataset_names(const TrainerOptions& options) {
    boost::json::array names;
    for (const auto& [name, dataset] : options.datasets) {
        names.emplace_back(name);
    }
    return names;
}

/// The text of trainer.json. Functions, data sets and file systems cannot be written down; of data
/// sets the names are.
[[nodiscard]] inline std::string trainer_text(const TrainerOptions& options) {
    const ScalingConfig& scaling = options.scaling;
    const FailureConfig& failure = options.run.failure;
    const CheckpointConfig& checkpoint = options.run.checkpoint;
    boost::json::object workers{{"min", scaling.num_workers.min()},
                                {"max", scaling.num_workers.max()}};
    return json::serialize(
        {{"format", "rtrain-trainer"},
         {"version", 1},
         {"config", options.config},
         {"metadata", options.metadata},
         {"datasets", dataset_names(options)},
         {"scaling",
          {{"num_workers", scaling.num_workers ? boost::json::value(std::move(workers)) : nullptr},
           {"use_gpu", scaling.use_gpu},
           {"gpus_per_worker", scaling.gpus_per_worker},
           {"threads_per_worker", scaling.threads_per_worker},
           {"mpirun_args", boost::json::value_from(scaling.mpirun_args)}}},
         {"failure",
          {{"max_failures", failure.max_failures},
           {"controller_failure_limit", failure.controller_failure_limit},
           {"max_preemption_failures", failure.max_preemption_failures},
           {"keep_survivors", failure.keep_survivors}}},
         {"checkpoint",
          {{"num_to_keep",
            checkpoint.num_to_keep ? boost::json::value(*checkpoint.num_to_keep) : nullptr},
           {"score_attribute",
            checkpoint.score_attribute ? boost::json::value(*checkpoint.score_attribute) : nullptr},
           {"score_order", checkpoint.score_order == ScoreOrder::max ? "max" : "min"},
           {"frequency", checkpoint.frequency},
           {"mean_time_between_failures_s",
            checkpoint.mean_time_between_failures_s
                ? boost::json::value(*checkpoint.mean_time_between_failures_s)
                : nullptr},
           {"at_end", checkpoint.at_end}}}});
}

/// The options in the text of a trainer.json. Throws std::exception where it is none.
[[nodiscard]] inline TrainerOptions trainer_options(const boost::json::object& saved) {
    if (saved.at("format").as_string() != "rtrain-trainer" || saved.at("version") != 1) {
        throw std::runtime_error("it has another format");
    }
    const auto whole = [](const boost::json::value& value) { return value.to_number<int>(); };
    TrainerOptions options;
    options.config = saved.at("config").as_object();
    options.metadata = saved.at("metadata").as_object();
    const auto& scaling = saved.at("scaling").as_object();
    if (const auto* const workers = scaling.at("num_workers").if_object()) {
        options.scaling.num_workers = {whole(workers->at("min")), whole(workers->at("max"))};
    }
    options.scaling.use_gpu = scaling.at("use_gpu").as_bool();
    options.scaling.gpus_per_worker = scaling.at("gpus_per_worker").to_number<double>();
    options.scaling.threads_per_worker = whole(scaling.at("threads_per_worker"));
    options.scaling.mpirun_args =
        boost::json::value_to<std::vector<std::string>>(scaling.at("mpirun_args"));
    const auto& failure = saved.at("failure").as_object();
    options.run.failure.max_failures = whole(failure.at("max_failures"));
    options.run.failure.controller_failure_limit = whole(failure.at("controller_failure_limit"));
    options.run.failure.max_preemption_failures = whole(failure.at("max_preemption_failures"));
    const auto& checkpoint = saved.at("checkpoint").as_object();
    if (const auto& keep = checkpoint.at("num_to_keep"); !keep.is_null()) {
        options.run.checkpoint.num_to_keep = whole(keep);
    }
    if (const auto* const attribute = checkpoint.at("score_attribute").if_string()) {
        options.run.checkpoint.score_attribute = std::string(*attribute);
    }
    options.run.checkpoint.score_order =
        ScoreOrder(std::string_view(checkpoint.at("score_order").as_string()));
    options.run.checkpoint.frequency = whole(checkpoint.at("frequency"));
    if (const auto* const mean = checkpoint.if_contains("mean_time_between_failures_s");
        mean != nullptr && !mean->is_null()) { // runs of earlier versions have none
        options.run.checkpoint.mean_time_between_failures_s = mean->to_number<double>();
    }
    options.run.checkpoint.at_end = checkpoint.at("at_end").as_bool();
    return options;
}

/// trainer.json of a run. Throws StorageError [RT-S6] when the directory is none of a run.
[[nodiscard]] inline boost::json::object
read_trainer(const std::filesystem::path& run_directory,
             const std::optional<storage::AnyFilesystem>& filesystem) {
    const storage::Location at = filesystem ? storage::Location{*filesystem, run_directory.string()}
                                            : storage::locate(run_directory);
    const std::string file = at.path + "/" + trainer_file;
    try {
        auto saved = json::parse(at.filesystem.read(file)).as_object();
        (void)trainer_options(saved);
        return saved;
    } catch (const TransientStorageError&) {
        throw;
    } catch (const std::bad_alloc&) { // says nothing about the file
        throw;
    } catch (const std::exception& error) {
        throw StorageError("RT-S6", concat(at.filesystem.uri(at.path), " cannot be restored: ",
                                           trainer_file, ": ", error.what()));
    }
}

/// What a trainer is made from that goes on with the run in a directory: `given`, or all that the
/// run was made from; its configuration where `given` has none. Throws StorageError [RT-S6],
/// ConfigError [RT-C18] when the data sets have other names than those of the run.
[[nodiscard]] inline TrainerOptions
restored_options(std::filesystem::path run_directory, std::optional<TrainerOptions> given,
                 const std::optional<storage::AnyFilesystem>& filesystem) {
    if (!run_directory.has_filename()) { // "runs/a/"
        run_directory = run_directory.parent_path();
    }
    const auto saved = read_trainer(run_directory, filesystem);
    TrainerOptions known = trainer_options(saved);
    TrainerOptions options = given ? std::move(*given) : known;
    if (options.config.empty()) {
        options.config = std::move(known.config);
    }
    if (const auto names = dataset_names(options); names != saved.at("datasets")) {
        throw ConfigError("RT-C18",
                          concat("the run was made with the data sets ",
                                 json::serialize(saved.at("datasets")), ", but is restored with ",
                                 json::serialize(names), "; give data sets with the same names"));
    }
    options.run.name = run_directory.filename().string();
    options.run.storage_path = run_directory.parent_path();
    options.run.storage_filesystem = filesystem;
    return options;
}

} // namespace rtrain::detail
