// SPDX-License-Identifier: Apache-2.0
/// @file
/// Placement of the ranks of a start: how many fit now, on which hosts, and the command for them.
///
/// Hosts come and go: a hostfile is read before each start, and hosts that do not answer get no
/// ranks, if `num_workers` is a range.
#pragma once

#include <rtrain/config/config.hpp>
#include <rtrain/launch/supervise/host_list.hpp>
#include <rtrain/launch/supervise/host_probe.hpp>
#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/process/os/descriptor_limit.hpp>
#include <rtrain/process/os/environment.hpp>
#include <rtrain/process/os/thread.hpp>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::launch {

struct Placement {
    int ranks = 1;                        ///< at most the maximum of num_workers
    std::vector<std::string> arguments{}; ///< for mpirun: the user's, with the hosts that answer
    bool remote = false;                  ///< true if ranks may be on other machines
    std::vector<std::string> others{};    ///< those machines, if they are named
    std::vector<std::string> silent{};    ///< hosts that do not answer
};

/// True if a job manager may have allocated other machines, which mpirun then uses.
[[nodiscard]] inline bool is_on_several_nodes() {
    return env_int("SLURM_JOB_NUM_NODES").value_or(1) > 1 ||
           std::getenv("PBS_NODEFILE") != nullptr || std::getenv("PE_HOSTFILE") != nullptr ||
           std::getenv("LSB_DJOB_HOSTFILE") != nullptr;
}

/// Returns how many ranks fit now: 0 if none, and maybe fewer than the minimum. A fixed
/// `num_workers` is taken without probing hosts. Needs up to 5 s. Throws LaunchError [RT-L11],
/// [RT-L12].
[[nodiscard]] inline Placement find_room(const ScalingConfig& scaling) {
    const NumWorkers& workers = scaling.num_workers;
    Placement place{.ranks = workers.value_or(1), .arguments = scaling.mpirun_args};
    const HostArguments given = read_host_arguments(scaling.mpirun_args);
    if (!given.name_hosts()) {
        place.remote = is_on_several_nodes();
        if (workers.is_elastic()) { // a Slurm job has its number of tasks
            place.ranks = std::min(place.ranks, env_int("SLURM_NTASKS").value_or(place.ranks));
        }
        return place;
    }
    std::vector<Host> hosts = hosts_of(given);
    if (workers.is_elastic()) {
        for (const Host& host : hosts) {
            place.silent.push_back(host.name);
        }
        hosts = answering(hosts, given.agent);
        int slots = 0;
        std::string list;
        for (const Host& host : hosts) {
            std::erase(place.silent, host.name);
            slots += *host.slots;
            list += detail::concat(list.empty() ? "" : ",", host.name, ":", *host.slots);
        }
        place.ranks = std::min(slots, workers.max());
        place.arguments = given.others;
        place.arguments.insert(place.arguments.end(), {"--host", list});
    }
    for (const Host& host : hosts) {
        if (!is_this_machine(host.name)) {
            place.others.push_back(without_user(host.name));
        }
    }
    place.remote = !place.others.empty();
    return place;
}

/// Throws LaunchError [RT-L17] if this process may open too few files for the ranks. At the `first`
/// start, throws [RT-L45] if this user has too few threads for those of this machine. Measured with
/// Open MPI 4.1: mpirun needs 4, each rank 6.
inline void require_room_for(const Placement& place, bool first) {
    constexpr int of_mpirun = 4;
    constexpr int of_rank = 6;
    constexpr int most_ranks = 100; // a limit that allows this many allows more
    const int here = place.remote ? 0 : place.ranks;
    const std::string what = detail::concat("starting ", place.ranks, " ranks");
    require_descriptors(descriptors_for_launch(place.ranks, here, open_descriptors()), what);
    if (first) { // later, previous ranks may still count
        process::require_threads(of_mpirun + of_rank * std::min(here, most_ranks), what);
    }
}

/// Like find_room(), but throws LaunchError [RT-L13] if too few ranks fit.
[[nodiscard]] inline Placement place_ranks(const ScalingConfig& scaling) {
    Placement place = find_room(scaling);
    if (scaling.num_workers.is_elastic() && place.ranks < scaling.num_workers.min()) {
        std::string silent;
        for (const std::string& host : place.silent) {
            silent += (silent.empty() ? "; no answer from " : ", ") + host;
        }
        throw LaunchError("RT-L13", detail::concat("the hosts have room for ", place.ranks,
                                                   " ranks, but num_workers needs at least ",
                                                   scaling.num_workers.min(), silent));
    }
    return place;
}

/// The ranks of a start, placed and prepared.
[[nodiscard]] inline RanksCommand command_for(const Task& task, const Placement& place,
                                              LaunchEnvironment given) {
    RanksCommand command{.ranks = place.ranks,
                         .arguments = place.arguments,
                         .program = task.program,
                         .variables = std::move(given.variables),
                         .name = task.name,
                         .keeps_input = given.keeps_input,
                         .heard = task.heard,
                         .needs_mpi = task.needs_mpi,
                         .rank_variables = std::move(given.rank_variables)};
    if (!place.remote) {
        command.scratch = std::move(given.directory);
        command.shared_memory = std::move(given.shared_memory);
    }
    return command;
}

} // namespace rtrain::launch
