// SPDX-License-Identifier: Apache-2.0
/// @file
/// `rtrain run --options FILE`: the fields of RunConfig as JSON, except those that are functions or
/// mean nothing to a program. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/program/options/json_fields.hpp>
#include <rtrain/program/options/stop_options.hpp>
#include <rtrain/program/options/tracker_options.hpp>
#include <rtrain/storage/file/file.hpp>

#include <boost/json/value.hpp>

#include <exception>
#include <string>

namespace rtrain::program {

namespace internal {

/// Reads an object of options, if the fields have it, by `read(fields, options)`.
template <class Options, class Read>
void read_part(JsonFields& fields, const char* name, Options& options, Read&& read) {
    fields.use(name, [&](const boost::json::value& object, const std::string& key) {
        JsonFields own(object, key);
        read(own, options);
        own.finish();
    });
}

inline void read_hang(JsonFields& fields, HangConfig& hang) {
    fields.read("enabled", hang.enabled);
    fields.read("start_s", hang.start_s);
    fields.read("idle_s", hang.idle_s);
    fields.read("factor", hang.factor);
    fields.read("stopped_s", hang.stopped_s);
    fields.read("silent_s", hang.silent_s);
}

inline void read_failure(JsonFields& fields, FailureConfig& failure) {
    fields.read("max_failures", failure.max_failures);
    fields.read("controller_failure_limit", failure.controller_failure_limit);
    fields.read("max_preemption_failures", failure.max_preemption_failures);
    fields.read("backoff_s", failure.backoff_s);
    fields.read("backoff_max_s", failure.backoff_max_s);
    fields.read("preemption_grace_s", failure.preemption_grace_s);
    read_part(fields, "hang", failure.hang, read_hang);
}

inline void read_checkpoint(JsonFields& fields, CheckpointConfig& checkpoint) {
    fields.read("num_to_keep", checkpoint.num_to_keep);
    fields.read("score_attribute", checkpoint.score_attribute);
    fields.read_name("score_order", checkpoint.score_order);
}

inline void read_transfer(JsonFields& fields, storage::TransferConfig& transfer) {
    fields.read("parallel", transfer.parallel);
    fields.read("attempts", transfer.attempts);
    fields.read("first_backoff_s", transfer.first_backoff_s);
    fields.read("max_backoff_s", transfer.max_backoff_s);
    fields.read("request_timeout_s", transfer.request_timeout_s);
    fields.read("deadline_s", transfer.deadline_s);
}

inline void read_console(JsonFields& fields, ConsoleConfig& console) {
    fields.read("verbose", console.verbose);
    fields.read("live", console.live);
}

inline void read_logging(JsonFields& fields, LoggingConfig& logging) {
    fields.read_name("level", logging.level);
    fields.read("json", logging.json);
}

inline void read_run(const boost::json::value& json, RunConfig& run) {
    JsonFields fields(json, "");
    std::string storage_path = run.storage_path.string();
    fields.read("name", run.name);
    fields.read("storage_path", storage_path);
    run.storage_path = storage_path;
    fields.read_name("resume", run.resume);
    read_part(fields, "failure", run.failure, read_failure);
    read_part(fields, "checkpoint", run.checkpoint, read_checkpoint);
    read_part(fields, "transfer", run.transfer, read_transfer);
    read_part(fields, "console", run.console, read_console);
    read_part(fields, "logging", run.logging, read_logging);
    fields.use("stop",
               [&](const auto& value, const std::string& key) { run.stop = stop_in(value, key); });
    fields.use("trackers", [&](const auto& value, const std::string& key) {
        run.trackers = trackers_in(value, key);
    });
    fields.finish();
}

} // namespace internal

/// Sets what a JSON file has. Throws ConfigError [RT-E64], and what trackers' constructors throw.
inline void read_run_options(const std::string& file, RunConfig& run) {
    boost::json::value json;
    try {
        json = json::parse(storage::read_file(file));
    } catch (const std::exception& error) {
        throw ConfigError("RT-E64", detail::concat("--options ", file, ": ", error.what()));
    }
    try {
        internal::read_run(json, run);
    } catch (const ConfigError& error) {
        throw ConfigError(error.code(), detail::concat("--options ", file, ": ", error.message()));
    }
}

} // namespace rtrain::program
