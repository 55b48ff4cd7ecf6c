// SPDX-License-Identifier: Apache-2.0
/// @file
/// The policy logs of population based training in Ray's format: pbt_global.txt has every exploit,
/// pbt_policy_<trial>.txt those in the trial's current lineage. PbtReplay reads the latter. Cost
/// tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/growing_file.hpp>

#include <boost/json/array.hpp>

#include <cstdint>
#include <filesystem>
#include <string>

namespace rtrain::tune {

inline constexpr const char* pbt_global_file = "pbt_global.txt";

[[nodiscard]] inline std::filesystem::path policy_file(const std::filesystem::path& experiment,
                                                       const std::string& trial) {
    return experiment / ("pbt_policy_" + trial + ".txt");
}

struct PolicyLine {
    const std::string& trial;
    const std::string& donor;
    std::int64_t iteration;       ///< of the trial
    std::int64_t donor_iteration; ///< of the donor
    const boost::json::object& donor_config;
    const boost::json::object& config; ///< the trial's new one
};

/// Appends the line, as an array of its members, to both logs. The trial's own log starts with a
/// copy of the donor's, whose history it takes over.
inline void log_exploit(const std::filesystem::path& experiment, const PolicyLine& of) {
    const auto& [trial, donor, iteration, donor_iteration, donor_config, config] = of;
    const boost::json::array row{trial, donor, iteration, donor_iteration, donor_config, config};
    const std::string line = json::serialize(row) + "\n";
    storage::GrowingFile(experiment / pbt_global_file).append(line);
    const auto of_donor = policy_file(experiment, donor);
    const std::string past =
        std::filesystem::exists(of_donor) ? storage::read_file(of_donor) : std::string();
    storage::replace_file(policy_file(experiment, trial), past + line);
}

} // namespace rtrain::tune
