// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of the options that each run has, without ranks and storage.
/// Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/config/run_name.hpp>

#include <cmath>
#include <string>
#include <utility>

namespace rtrain::detail {

/// Throws ConfigError [RT-C1, RT-C7, RT-C9].
inline void check_scaling(const ScalingConfig& scaling) {
    const NumWorkers& workers = scaling.num_workers;
    if (workers.min() < 1 || workers.min() > workers.max()) {
        throw ConfigError("RT-C1",
                          workers.is_elastic()
                              ? concat("num_workers is {", workers.min(), ", ", workers.max(),
                                       "}; expected at least 1, and the smaller number first")
                              : concat("num_workers is ", *workers, "; expected at least 1"));
    }
    if (scaling.threads_per_worker < 0) {
        throw ConfigError("RT-C9", concat("threads_per_worker is ", scaling.threads_per_worker,
                                          "; expected 0 (automatic) or more"));
    }
    if (!(scaling.elastic_resize_monitor_interval_s > 0)) {
        throw ConfigError("RT-C7", concat("elastic_resize_monitor_interval_s is ",
                                          scaling.elastic_resize_monitor_interval_s,
                                          "; expected more than 0"));
    }
}

/// Throws ConfigError [RT-C7].
inline void check_failure_config(const FailureConfig& failure) {
    for (const auto& [name, limit] :
         {std::pair("max_failures", failure.max_failures),
          std::pair("controller_failure_limit", failure.controller_failure_limit),
          std::pair("max_preemption_failures", failure.max_preemption_failures)}) {
        if (limit < -1) {
            throw ConfigError(
                "RT-C7", concat(name, " is ", limit, "; expected 0 or more, or -1 for no limit"));
        }
    }
    const HangConfig& hang = failure.hang;
    for (const auto& [name, seconds] :
         {std::pair("backoff_s", failure.backoff_s),
          std::pair("backoff_max_s", failure.backoff_max_s),
          std::pair("preemption_grace_s", failure.preemption_grace_s),
          std::pair("hang.start_s", hang.start_s), std::pair("hang.idle_s", hang.idle_s),
          std::pair("hang.busy_s", hang.busy_s), std::pair("hang.factor", hang.factor),
          std::pair("hang.stopped_s", hang.stopped_s), std::pair("hang.silent_s", hang.silent_s)}) {
        if (!(seconds >= 0)) {
            throw ConfigError("RT-C7", concat(name, " is ", seconds, "; expected 0 or more"));
        }
    }
}

/// Throws ConfigError [RT-C3, RT-C19].
inline void check_checkpoint_config(const CheckpointConfig& checkpoint) {
    if (const auto& keep = checkpoint.num_to_keep; keep && *keep < 1) {
        throw ConfigError("RT-C3", concat("num_to_keep is ", *keep,
                                          "; expected at least 1, or unset to keep all"));
    }
    if (checkpoint.frequency < 0) {
        throw ConfigError("RT-C3", concat("the checkpoint frequency is ", checkpoint.frequency,
                                          "; expected 0 or more"));
    }
    const auto& mean = checkpoint.mean_time_between_failures_s;
    if (mean && !(*mean > 0 && std::isfinite(*mean))) {
        throw ConfigError("RT-C3", concat("mean_time_between_failures_s is ", *mean,
                                          "; expected more than 0, or unset"));
    }
    if (mean && checkpoint.frequency != 0) {
        throw ConfigError("RT-C19", concat("mean_time_between_failures_s is ", *mean,
                                           " and frequency is ", checkpoint.frequency,
                                           ", but only one can decide which reports save a "
                                           "checkpoint; leave the other unset"));
    }
}

/// Throws ConfigError [RT-C39].
inline void check_console(const ConsoleConfig& console) {
    if (console.verbose < 0 || console.verbose > 2) {
        throw ConfigError("RT-C39",
                          concat("console.verbose is ", console.verbose, "; expected 0, 1 or 2"));
    }
    constexpr int last_port = 65'535;
    if (console.live && (*console.live < 0 || *console.live > last_port)) {
        throw ConfigError("RT-C39",
                          concat("console.live is ", *console.live, "; expected a port from 1 to ",
                                 last_port, ", 0 for any that is free, or unset"));
    }
}

/// Throws ConfigError [RT-C13].
inline void check_storage(const RunConfig& run) {
    const std::string storage_path = run.storage_path.string();
    if (run.storage_filesystem && storage_path.find("://") != std::string::npos) {
        throw ConfigError(
            "RT-C13", concat("storage_path is ", storage_path,
                             "; with a storage_filesystem, pass a path in it, without a scheme"));
    }
}

/// Throws ConfigError [RT-C4]. If the name is empty, rtrain chooses one.
inline void check_run_name(const std::string& name) {
    if (!is_run_name(name)) {
        throw ConfigError("RT-C4", concat("the run's name is \"", name, "\"; ", expected_run_name));
    }
}

} // namespace rtrain::detail
