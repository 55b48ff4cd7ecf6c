// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trackers in JSON: "tensorboard", or {"kind": "mlflow", "uri": "http://host:5000"}.
/// Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/program/options/json_fields.hpp>
#include <rtrain/track/files/json_lines.hpp>
#include <rtrain/track/mlflow/mlflow.hpp>
#include <rtrain/track/offline/comet.hpp>
#include <rtrain/track/offline/wandb.hpp>
#include <rtrain/track/tensorboard/tensorboard.hpp>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace rtrain::program {

inline const std::vector<std::string> tracker_names{"tensorboard", "mlflow", "wandb", "comet",
                                                    "json_lines"};

namespace internal {

[[nodiscard]] inline track::AnyTracker mlflow_of(JsonFields& fields) {
    track::MlFlowOptions options;
    fields.read("uri", options.uri);
    fields.read("experiment", options.experiment);
    fields.read("run_name", options.run_name);
    fields.read("tags", options.tags);
    fields.read("file", options.file);
    fields.read("steps", options.steps);
    fields.read("artifacts", options.artifacts);
    fields.finish(); // before the constructor's errors
    return track::MlFlow(options);
}

[[nodiscard]] inline track::AnyTracker wandb_of(JsonFields& fields) {
    track::WandbOptions options;
    fields.read("project", options.project);
    fields.read("entity", options.entity);
    fields.read("run_name", options.run_name);
    fields.read("group", options.group);
    fields.read("notes", options.notes);
    fields.read("tags", options.tags);
    fields.read("directory", options.directory);
    return track::Wandb(options);
}

[[nodiscard]] inline track::AnyTracker comet_of(JsonFields& fields) {
    track::CometOptions options;
    fields.read("project", options.project);
    fields.read("workspace", options.workspace);
    fields.read("run_name", options.run_name);
    fields.read("tags", options.tags);
    fields.read("directory", options.directory);
    return track::Comet(options);
}

[[nodiscard]] inline track::AnyTracker tracker_of(const std::string& kind, JsonFields& fields) {
    if (kind == "mlflow") {
        return mlflow_of(fields);
    }
    if (kind == "wandb") {
        return wandb_of(fields);
    }
    if (kind == "comet") {
        return comet_of(fields);
    }
    if (kind == "json_lines") {
        std::string file = "metrics.jsonl";
        fields.read("file", file);
        return track::JsonLines(file);
    }
    std::string directory = "tensorboard";
    fields.read("directory", directory);
    return track::TensorBoard(directory);
}

} // namespace internal

/// Throws ConfigError [RT-E64], and what the trackers' constructors throw.
[[nodiscard]] inline track::AnyTracker tracker_in(const boost::json::value& json,
                                                  const std::string& key) {
    JsonFields fields(json.is_string() ? boost::json::value{{"kind", json}} : json, key);
    track::AnyTracker tracker = internal::tracker_of(fields.read_kind(tracker_names), fields);
    fields.finish();
    return tracker;
}

/// Throws like tracker_in().
[[nodiscard]] inline std::vector<track::AnyTracker> trackers_in(const boost::json::value& json,
                                                                const std::string& key) {
    if (!json.is_array()) {
        throw ConfigError("RT-E64", detail::concat('"', key, "\" is not a list of trackers"));
    }
    std::vector<track::AnyTracker> all;
    for (std::size_t i = 0; i < json.get_array().size(); ++i) {
        all.push_back(tracker_in(json.get_array()[i], detail::concat(key, '/', i)));
    }
    return all;
}

} // namespace rtrain::program
