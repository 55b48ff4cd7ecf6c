// SPDX-License-Identifier: Apache-2.0
/// @file
/// The options of a program for one trial of a search.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/program/program_options.hpp>
#include <rtrain/tune/processes/trial_task.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace rtrain::tune {

/// The program's options, changed by the trial's configuration. "scaling/x" sets an option of
/// ScalingConfig, "datasets/x" a path of ProgramOptions::datasets; all else is merged into
/// ProgramOptions::config, object by object. Throws ConfigError [RT-U112] for an invalid name or
/// value.
[[nodiscard]] inline ProgramOptions trial_options(ProgramOptions options, const Config& config) {
    for (const auto& item : config) {
        const std::string_view key = item.key();
        const auto* const several = item.value().if_object();
        if (key == "scaling" && several != nullptr) {
            for (const auto& option : *several) {
                internal::set_scaling(options.scaling, std::string(option.key()), option.value());
            }
        } else if (key == "datasets" && several != nullptr) {
            for (const auto& one : *several) {
                if (!one.value().is_string()) {
                    throw ConfigError(
                        "RT-U112", rtrain::detail::concat("the space gives \"datasets/",
                                                          std::string(one.key()), "\" the value ",
                                                          json::serialize(one.value()),
                                                          "; give the path of its files"));
                }
                options.datasets[std::string(one.key())] = one.value().as_string();
            }
        } else {
            internal::merge(options.config, Config{{key, item.value()}});
        }
    }
    return options;
}

} // namespace rtrain::tune
