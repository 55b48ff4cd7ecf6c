// SPDX-License-Identifier: Apache-2.0
/// @file
/// RunFacts: the environment of a start of a run; with its models, it is stored as run.json in the
/// run's directory, for report pages.
#pragma once

#include <rtrain/config/config.hpp>
#include <rtrain/console/model_table.hpp>
#include <rtrain/process/os/machine.hpp>
#include <rtrain/version.hpp>

#include <boost/json/array.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::track {

/// The facts in a header that are not in observer events.
struct RunFacts {
    int ranks = 1;
    int hosts = 1;
    int threads = 1;      ///< of rank 0
    std::string device{}; ///< of rank 0
    /// Libraries: "libtorch", and its version with the path of the loaded file.
    std::vector<std::pair<std::string, std::string>> libraries{};
    std::string goes_on{}; ///< command or advice for resuming the run
};

/// The contents of run.json. Omits model parts deeper than 3, and more than 200.
[[nodiscard]] inline Config to_json(const RunFacts& facts,
                                    const std::vector<std::vector<console::ModelPart>>& models) {
    constexpr int deepest = 3;
    constexpr std::size_t most_parts = 200;
    Config libraries;
    for (const auto& [name, version] : facts.libraries) {
        libraries[name] = version;
    }
    boost::json::array all;
    for (const auto& parts : models) {
        boost::json::array shown;
        for (const console::ModelPart& part : parts) {
            if (part.depth <= deepest && shown.size() < most_parts) {
                shown.push_back({{"name", part.name},
                                 {"type", part.type},
                                 {"depth", part.depth},
                                 {"parameters", part.parameters},
                                 {"trainable", part.trainable},
                                 {"bytes", part.bytes}});
            }
        }
        all.push_back({{"parts", std::move(shown)}, {"modules", parts.size()}});
    }
    return {{"rtrain", RTRAIN_VERSION},     {"libraries", std::move(libraries)},
            {"ranks", facts.ranks},         {"hosts", facts.hosts},
            {"host", storage::host_name()}, {"threads", facts.threads},
            {"device", facts.device},       {"models", std::move(all)}};
}

} // namespace rtrain::track
