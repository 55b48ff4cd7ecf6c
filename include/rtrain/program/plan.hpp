// SPDX-License-Identifier: Apache-2.0
/// @file
/// ProgramPlan: what the driver decides for one start of a program, the same for all ranks.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/program/rendezvous.hpp>

#include <cstdlib>
#include <string>
#include <vector>

namespace rtrain::program {

struct ProgramPlan {
    /// Carries text() to the parents of the ranks.
    static constexpr const char* variable = "RTRAIN_PROGRAM";

    Meeting meeting = Meeting::torch;
    std::string run = "rtrain";       ///< its name
    int restarts = 0;                 ///< starts before this one
    int max_restarts = 0;             ///< -1: no limit
    std::string address{};            ///< where rank 0 listens; empty: the ranks agree on it
    std::vector<int> ports{};         ///< of rank 0, or of all ranks; empty with `address`
    int threads = 0;                  ///< per rank; 0: its share of the cores
    double gpus = 0;                  ///< per rank; 0: all GPUs are visible
    std::vector<std::string> hosts{}; ///< of the ranks, if they are on several
    std::string directory{};          ///< of the run
    std::string checkpoint{};         ///< path of the one to resume from; empty: none
    std::string stop{};               ///< why the run had stopped before; empty: it continues
    std::string preload{};            ///< path of the preload server's socket; empty: none

    bool operator==(const ProgramPlan&) const = default;

    [[nodiscard]] std::string text() const {
        return json::serialize({{"meeting", meeting_names[meeting]},
                                {"run", run},
                                {"restarts", restarts},
                                {"max_restarts", max_restarts},
                                {"address", address},
                                {"ports", boost::json::array(ports.begin(), ports.end())},
                                {"threads", threads},
                                {"gpus", gpus},
                                {"hosts", boost::json::array(hosts.begin(), hosts.end())},
                                {"directory", directory},
                                {"checkpoint", checkpoint},
                                {"stop", stop},
                                {"preload", preload}});
    }

    /// Throws std::exception for a text that text() cannot have written.
    [[nodiscard]] static ProgramPlan parse(const std::string& text) {
        const boost::json::object object = json::parse_object(text);
        ProgramPlan plan{.meeting =
                             meeting_names.parse(std::string_view(object.at("meeting").as_string()))
                                 .value_or(Meeting::none),
                         .run = std::string(object.at("run").as_string()),
                         .restarts = object.at("restarts").to_number<int>(),
                         .max_restarts = object.at("max_restarts").to_number<int>(),
                         .address = std::string(object.at("address").as_string()),
                         .threads = object.at("threads").to_number<int>(),
                         .gpus = object.at("gpus").to_number<double>(),
                         .directory = std::string(object.at("directory").as_string()),
                         .checkpoint = std::string(object.at("checkpoint").as_string()),
                         .stop = std::string(object.at("stop").as_string()),
                         .preload = std::string(object.at("preload").as_string())};
        for (const auto& port : object.at("ports").as_array()) {
            plan.ports.push_back(port.to_number<int>());
        }
        for (const auto& host : object.at("hosts").as_array()) {
            plan.hosts.emplace_back(host.as_string());
        }
        return plan;
    }

    /// The plan of the driver that has started this process; otherwise the default.
    [[nodiscard]] static ProgramPlan of_this_process() {
        const char* const text = std::getenv(variable);
        return text != nullptr ? parse(text) : ProgramPlan{};
    }
};

} // namespace rtrain::program
