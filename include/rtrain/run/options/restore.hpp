// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trainer::restore(): reads trainer.json from the run's directory and merges it with the given
/// options.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/parsing.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/run/options/option_fields.hpp>
#include <rtrain/run/options/option_json.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/storage/locate.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace rtrain::detail {

[[nodiscard]] inline boost::json::array dataset_names(const TrainerOptions& options) {
    boost::json::array names;
    for (const auto& [name, dataset] : options.datasets) {
        names.emplace_back(name);
    }
    return names;
}

/// Returns the contents of trainer.json: all serializable options, and the names of data sets. The
/// fields of RunConfig are at the top level.
[[nodiscard]] inline boost::json::object trainer_json(const TrainerOptions& options) {
    boost::json::object text{{"format", "rtrain-trainer"}, {"version", 1}};
    boost::json::object fields = json_of(options).as_object();
    boost::json::object run = std::move(fields.at("run").as_object());
    fields.erase("run");
    for (const auto* const part : {&fields, &run}) {
        text.insert(part->begin(), part->end());
    }
    text["datasets"] = dataset_names(options);
    return text;
}

/// Parses the options in a trainer.json; fields missing in older versions get their defaults.
/// Throws std::exception if it is not valid.
[[nodiscard]] inline TrainerOptions trainer_options(const boost::json::object& saved) {
    if (saved.at("format").as_string() != "rtrain-trainer" || saved.at("version") != 1) {
        throw std::runtime_error("not an rtrain-trainer file of version 1");
    }
    TrainerOptions options;
    read_json(saved, options);
    read_json(saved, options.run);
    return options;
}

/// Reads a run's trainer.json. Throws StorageError [RT-S6] if the directory does not contain a run.
[[nodiscard]] inline boost::json::object
read_trainer(const std::filesystem::path& run_directory,
             const std::optional<storage::AnyFilesystem>& filesystem) {
    const storage::Location at = filesystem ? storage::Location{*filesystem, run_directory.string()}
                                            : storage::locate(run_directory);
    const std::string file = at.path + "/" + track::trainer_file;
    const auto saved = [&] {
        auto fields = json::parse(at.filesystem.read(file)).as_object();
        (void)trainer_options(fields);
        (void)fields.at("datasets").as_array();
        return fields;
    };
    return parsed(saved, [&](const char* why) {
        return StorageError("RT-S6", concat(at.filesystem.uri(at.path), " cannot be restored: ",
                                            track::trainer_file, ": ", why));
    });
}

/// Sets the unset fields of `given` to those of `known`. A value equal to its default counts as
/// unset.
template <class Options>
void inherit(Options& given, const Options& known) {
    const Options defaults;
    for_each_field<Options>([&](const auto& field) {
        using Value = typename std::decay_t<decltype(field)>::Value;
        Value& mine = given.*field.member;
        const Value& other = known.*field.member;
        if constexpr (has_fields<Value>) {
            inherit(mine, other);
        } else if constexpr (can_be_written<Value>) {
            if (mine == defaults.*field.member) {
                mine = other;
            }
        }
    });
}

/// Resets the fields of `known` that `given` makes meaningless: an order without its score, the
/// other of two ways to specify when to save.
inline void forget_replaced(const CheckpointConfig& given, CheckpointConfig& known) {
    if (given.score_attribute) {
        known.score_order = CheckpointConfig().score_order;
    }
    if (given.frequency != 0) {
        known.mean_time_between_failures_s.reset();
    }
    if (given.mean_time_between_failures_s) {
        known.frequency = 0;
    }
}

/// Returns the options to resume the run in a directory: `given`, with the run's own options where
/// `given` has none. Throws StorageError [RT-S6], ConfigError [RT-C18] if the names of the data
/// sets differ.
[[nodiscard]] inline TrainerOptions
restored_options(std::filesystem::path run_directory, std::optional<TrainerOptions> given,
                 const std::optional<storage::AnyFilesystem>& filesystem) {
    if (!filesystem && run_directory.string().find("://") == std::string::npos) { // "a", "."
        run_directory = std::filesystem::absolute(run_directory / ".").lexically_normal();
    }
    if (!run_directory.has_filename()) { // "runs/a/"
        run_directory = run_directory.parent_path();
    }
    const auto saved = read_trainer(run_directory, filesystem);
    TrainerOptions known = trainer_options(saved);
    TrainerOptions options = given ? std::move(*given) : TrainerOptions();
    forget_replaced(options.run.checkpoint, known.run.checkpoint);
    inherit(options, known);
    if (const auto names = dataset_names(options); names != saved.at("datasets")) {
        throw ConfigError("RT-C18",
                          concat("the run was made with the data sets ",
                                 json::serialize(saved.at("datasets")), ", but is restored with ",
                                 json::serialize(names), "; give data sets with the same names"));
    }
    options.run.name = run_directory.filename().string();
    options.run.storage_path = run_directory.parent_path();
    options.run.storage_filesystem = filesystem;
    options.run.resume = Resume::always; // differences are intentional
    return options;
}

} // namespace rtrain::detail
