// SPDX-License-Identifier: Apache-2.0
/// @file
/// RankPlace: which rank a process is, and on which node.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/process/os/environment.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace rtrain::program {

struct RankPlace {
    /// For a rank that the driver starts on this machine, in the form of text().
    static constexpr const char* variable = "RTRAIN_PLACE";

    int rank = 0;
    int size = 1;
    int local_rank = 0;
    int local_size = 1;
    int node = 0;
    int nodes = 1;

    bool operator==(const RankPlace&) const = default;

    [[nodiscard]] bool is_on_one_node() const noexcept { return local_size == size; }

    [[nodiscard]] std::string text() const {
        return detail::concat(rank, ' ', size, ' ', local_rank, ' ', local_size, ' ', node, ' ',
                              nodes);
    }

    /// The place that the driver, mpirun or srun has given this process; otherwise the only rank.
    [[nodiscard]] static RankPlace of_this_process() {
        if (const char* const text = std::getenv(variable)) {
            RankPlace place;
            detail::strict(std::istringstream(text)) >> place.rank >> place.size >>
                place.local_rank >> place.local_size >> place.node >> place.nodes;
            return place;
        }
        for (const auto& names :
             {MpirunNames{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                          "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
              // srun with PMI sets only the first two.
              MpirunNames{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}}) {
            if (const auto place = of_mpirun(names)) {
                return *place;
            }
        }
        return of_srun().value_or(RankPlace{});
    }

    /// The place of a rank by the hosts of all ranks.
    [[nodiscard]] static RankPlace among(const std::vector<std::string>& hosts, int rank) {
        RankPlace place{.rank = rank, .size = static_cast<int>(hosts.size()), .local_size = 0};
        const std::string& own = hosts.at(static_cast<std::size_t>(rank));
        std::vector<std::string> nodes; // in the order of their first ranks
        for (std::size_t i = 0; i < hosts.size(); ++i) {
            if (std::find(nodes.begin(), nodes.end(), hosts[i]) == nodes.end()) {
                nodes.push_back(hosts[i]);
            }
            if (hosts[i] == own) {
                place.local_rank += static_cast<int>(i) < rank ? 1 : 0;
                ++place.local_size;
            }
        }
        place.node = static_cast<int>(std::find(nodes.begin(), nodes.end(), own) - nodes.begin());
        place.nodes = static_cast<int>(nodes.size());
        return place;
    }

    /// Number of tasks of a node in Slurm's list, such as "4(x2),3".
    [[nodiscard]] static int tasks_of_node(const std::string& list, int node) {
        auto parts = detail::strict(std::istringstream(list));
        int tasks = 1;
        for (std::string part; std::getline(parts, part, ',');) {
            int times = 1;
            auto text = detail::strict(std::istringstream(part));
            text >> tasks;
            if (std::string rest; text >> rest && rest.starts_with("(x")) {
                times = std::atoi(rest.c_str() + 2);
            }
            node -= times;
            if (node < 0) {
                break;
            }
        }
        return tasks;
    }

private:
    /// The variables of an mpirun.
    struct MpirunNames {
        const char* rank;
        const char* size;
        const char* local_rank;
        const char* local_size;
    };

    /// Empty if a variable is missing.
    static std::optional<RankPlace> of_mpirun(const MpirunNames& names) {
        const auto rank = launch::env_int(names.rank);
        const auto size = launch::env_int(names.size);
        const auto local_rank = launch::env_int(names.local_rank);
        const auto local_size = launch::env_int(names.local_size);
        if (!rank || !size || !local_rank || local_size.value_or(0) < 1) {
            return std::nullopt;
        }
        // In the order of hosts, equally many on each; a driver knows better.
        return RankPlace{.rank = *rank,
                         .size = *size,
                         .local_rank = *local_rank,
                         .local_size = *local_size,
                         .node = (*rank - *local_rank) / *local_size,
                         .nodes = (*size + *local_size - 1) / *local_size};
    }

    /// Empty outside a step of srun.
    static std::optional<RankPlace> of_srun() {
        const auto size = launch::env_int("SLURM_STEP_NUM_TASKS");
        const auto rank = launch::env_int("SLURM_PROCID");
        if (!size || !rank) {
            return std::nullopt;
        }
        RankPlace place{.rank = *rank,
                        .size = *size,
                        .local_rank = launch::env_int("SLURM_LOCALID").value_or(0),
                        .node = launch::env_int("SLURM_NODEID").value_or(0),
                        .nodes = launch::env_int("SLURM_STEP_NUM_NODES").value_or(1)};
        const char* const tasks = std::getenv("SLURM_STEP_TASKS_PER_NODE");
        place.local_size = tasks_of_node(tasks != nullptr ? tasks : "1", place.node);
        return place;
    }
};

} // namespace rtrain::program
