// SPDX-License-Identifier: Apache-2.0
/// @file
/// Open MPI settings for the ranks of a driver.
#pragma once

#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/launch/supervise/mca_settings.hpp>

#include <cstdlib>
#include <map>
#include <string>

#include <unistd.h>

namespace rtrain::launch {

/// Environment of ranks and mpirun: settings of Open MPI 4 and 5.
[[nodiscard]] inline std::map<std::string, std::string>
mpi_variables(const RanksCommand& command, const MpirunVersion& version = {}) {
    auto settings = command.variables;
    // More ranks than cores, and threads of a rank on separate cores.
    settings.merge(std::map<std::string, std::string>{
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
        {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"},
        {"PRTE_MCA_hwloc_default_binding_policy", "none"},
        // MPI busy-waits, as for ranks that join. Two ranks on one core would wait for the end of a
        // time slice with each message.
        {"OMPI_MCA_mpi_yield_when_idle", "1"},
        // PMIx keeps data about the ranks in shared memory with a lock. A rank that is killed while
        // it holds that lock keeps mpirun from exiting.
        {"PMIX_MCA_gds", "hash"}});
    // Only ob1 survives deaths. On one machine UCX is not faster, but takes a quarter of a second
    // at each start to measure the clock.
    const bool is_chosen = std::getenv("OMPI_MCA_pml") != nullptr; // by the user
    if (command.survive_deaths || (command.is_local() && !is_chosen)) {
        settings["OMPI_MCA_pml"] = "ob1";
    }
    if (command.scratch) {
        settings["OMPI_MCA_orte_tmpdir_base"] = command.scratch->string();
        settings["PRTE_MCA_prte_tmpdir_base"] = command.scratch->string();
    }
    settings.merge(local_transport(command, version));
    if (const auto place = place_to_share(command)) {
        settings["OMPI_MCA_btl_vader_backing_directory"] = place->string();
        settings["OMPI_MCA_btl_sm_backing_directory"] = place->string();
    }
    if (::geteuid() == 0) {
        settings["OMPI_ALLOW_RUN_AS_ROOT"] = "1";
        settings["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
    }
    return settings;
}

} // namespace rtrain::launch
