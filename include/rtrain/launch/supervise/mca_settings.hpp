// SPDX-License-Identifier: Apache-2.0
/// @file
/// The user's Open MPI settings, and the default transport between ranks if they do not choose one.
#pragma once

#include <rtrain/launch/supervise/launcher.hpp>
#include <rtrain/launch/supervise/mpirun_version.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <unistd.h>

namespace rtrain::launch {

/// True if a setting of Open MPI chooses the transport. "^openib" only excludes one, unless that is
/// shared memory.
[[nodiscard]] inline bool chooses_transport(std::string_view name, std::string_view value) {
    const bool keeps_shared = value.starts_with('^') && value.find("vader") == value.npos &&
                              value.find("sm") == value.npos;
    return !keeps_shared && (name == "btl" || name == "pml" || name.starts_with("btl_tcp"));
}

/// The same for a file of settings, one "name = value" per line.
[[nodiscard]] inline bool chooses_transport_in(const std::filesystem::path& file) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
        std::erase_if(line, [](char c) { return c == ' ' || c == '\t'; });
        const std::size_t name_end = std::min(line.find('='), line.size());
        const std::string_view setting(line);
        if (chooses_transport(setting.substr(0, name_end),
                              setting.substr(std::min(name_end + 1, line.size())))) {
            return true;
        }
    }
    return false;
}

/// The same for all places a user can set: environment, mpirun's arguments, files. Files that these
/// name count, too.
[[nodiscard]] inline bool user_chooses_transport(const RanksCommand& command) {
    constexpr std::string_view prefix = "OMPI_MCA_";
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string_view setting(*variable);
        if (setting.starts_with(prefix)) {
            const std::size_t name_end = setting.find('=');
            const auto name = setting.substr(prefix.size(), name_end - prefix.size());
            if (chooses_transport(name, setting.substr(name_end + 1)) ||
                name == "mca_base_param_files") {
                return true;
            }
        }
    }
    const bool by_argument = // takes precedence over the environment
        std::any_of(command.arguments.begin(), command.arguments.end(), [](const auto& word) {
            return chooses_transport(word, "") || word.ends_with("-tune") || word.ends_with("-am");
        });
    const char* const home = std::getenv("HOME");
    const std::filesystem::path own = home != nullptr ? home : "";
    return by_argument || chooses_transport_in(own / ".openmpi/mca-params.conf") ||
           chooses_transport_in("/etc/openmpi/openmpi-mca-params.conf");
}

/// Directory for the shared memory of ranks on this machine: in memory or, where that is scarce, as
/// in many containers, on disk; empty if neither has enough space.
[[nodiscard]] inline std::optional<std::filesystem::path>
place_to_share(const RanksCommand& command) {
    constexpr std::uintmax_t of_rank = std::uintmax_t{5} << 20; // Open MPI takes 4 MiB
    for (const auto& place : {command.shared_memory, command.scratch}) {
        std::error_code error;
        if (place &&
            std::filesystem::space(*place, error).available >=
                of_rank * static_cast<std::uintmax_t>(command.ranks) &&
            !error) {
            return place;
        }
    }
    return std::nullopt;
}

/// Ranks on one machine do not listen on a network; others listen on all interfaces.
[[nodiscard]] inline std::map<std::string, std::string>
local_transport(const RanksCommand& command, const MpirunVersion& version) {
    if (!command.is_local() || user_chooses_transport(command)) {
        return {};
    }
    // UCX and libfabric are MPICH's network layers.
    std::map<std::string, std::string> loopback{
        {"UCX_NET_DEVICES", "lo"}, {"FI_TCP_IFACE", "lo"}, {"FI_SOCKETS_IFACE", "lo"}};
    std::erase_if(loopback, [](const auto& item) { return std::getenv(item.first.c_str()); });
    if (version.is_hydra) {
        return loopback;
    }
    if (command.ranks == 1) { // without mpirun: which MPI is unknown
        loopback["OMPI_MCA_btl"] = "self";
        return loopback;
    }
    constexpr int first_without_vader = 5;
    const bool is_new = version.open_mpi && *version.open_mpi >= first_without_vader;
    return place_to_share(command)
               ? std::map<std::string, std::string>{{"OMPI_MCA_btl",
                                                     is_new ? "self,sm" : "self,vader"}}
               : std::map<std::string, std::string>{};
}

} // namespace rtrain::launch
