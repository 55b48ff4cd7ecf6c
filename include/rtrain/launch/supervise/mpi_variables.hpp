// SPDX-License-Identifier: Apache-2.0
/// @file
/// How MPI is to behave in the ranks of a driver: settings of Open MPI.
#pragma once

#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/launch/supervise/mca_settings.hpp>

#include <cstdlib>
#include <map>
#include <string>

#include <unistd.h>

namespace rtrain::launch {

/// What ranks and mpirun find in their environment: settings of Open MPI 4 and of 5.
[[nodiscard]] inline std::map<std::string, std::string>
mpi_variables(const RanksCommand& command, const MpirunVersion& version = {}) {
    auto settings = command.variables;
    // More ranks than cores, and a rank's threads on cores of their own.
    settings.merge(std::map<std::string, std::string>{
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
        {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"},
        {"PRTE_MCA_hwloc_default_binding_policy", "none"},
        // MPI spins where it waits by itself, as for ranks that join. Two ranks that the kernel
        // has put on one core would have each message wait for the end of a time slice.
        {"OMPI_MCA_mpi_yield_when_idle", "1"},
        // What ranks know of each other, PMIx keeps in memory that they share, behind a lock. A
        // rank that is killed while it holds that keeps mpirun from ending.
        {"PMIX_MCA_gds", "hash"}});
    // The only one that survives deaths; and on one machine, where UCX reaches nothing faster, UCX
    // would take a quarter of a second at each start to see how fast the clock is.
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
