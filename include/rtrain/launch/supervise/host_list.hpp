// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses the hosts in arguments of mpirun, as Open MPI does: `--hostfile`, `--machinefile`,
/// `--host`, `-H`.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/text/strict_stream.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace rtrain::launch {

struct Host {
    std::string name;           ///< as given, also user@name
    std::optional<int> slots{}; ///< ranks that fit; empty: one per processor
};

/// Returns the host name without `user@`.
[[nodiscard]] inline std::string without_user(const std::string& host) {
    const auto at = host.find('@');
    return at == std::string::npos ? host : host.substr(at + 1);
}

/// mpirun's arguments, parsed.
struct HostArguments {
    std::vector<std::string> files{}; ///< of --hostfile
    std::vector<Host> hosts{};        ///< of --host
    std::string agent{};              ///< the command that starts a command on another host
    std::vector<std::string> others{};

    [[nodiscard]] bool name_hosts() const noexcept { return !files.empty() || !hosts.empty(); }
};

[[nodiscard]] inline int slots_of(std::string_view digits, const std::string& where) {
    int slots = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), slots);
    if (error != std::errc{} || end != digits.data() + digits.size() || slots < 0) {
        throw LaunchError("RT-L12",
                          detail::concat(where, ": \"", digits,
                                         "\" is not a number of slots; expected a whole number"));
    }
    return slots;
}

/// A host named twice has the slots of both.
inline void add_host(std::vector<Host>& hosts, Host host) {
    const auto same = std::find_if(hosts.begin(), hosts.end(),
                                   [&](const Host& other) { return other.name == host.name; });
    if (same == hosts.end()) {
        hosts.push_back(std::move(host));
    } else if (same->slots && host.slots) {
        *same->slots += *host.slots;
    } else {
        same->slots.reset();
    }
}

/// Throws LaunchError [RT-L12] for a name that ssh and mpirun would parse as an option.
inline void require_host_name(const std::string& name, const std::string& where) {
    if (name.starts_with('-')) {
        throw LaunchError("RT-L12", detail::concat(where, ": \"", name,
                                                   "\" is not the name of a host: it begins with "
                                                   "'-'; remove it"));
    }
}

/// "a:2,b,c:*": two slots, one, and one per processor.
inline void add_host_list(std::vector<Host>& hosts, const std::string& list) {
    auto words = detail::strict(std::istringstream(list));
    for (std::string word; std::getline(words, word, ',');) {
        const std::size_t colon = word.find(':');
        Host host{.name = word.substr(0, colon), .slots = 1};
        if (host.name.empty()) {
            throw LaunchError("RT-L12", detail::concat("--host ", list,
                                                       ": a host has no name; expected, for "
                                                       "example, a:2,b:2"));
        }
        require_host_name(host.name, "--host " + list);
        if (colon != std::string::npos) {
            const std::string count = word.substr(colon + 1);
            host.slots = count == "*" ? std::optional<int>() : slots_of(count, "--host " + list);
        }
        add_host(hosts, std::move(host));
    }
}

[[nodiscard]] inline std::string agent_of_environment() {
    for (const char* name : {"OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent",
                             "OMPI_MCA_plm_ssh_agent", "PRTE_MCA_plm_rsh_agent"}) {
        if (const char* const agent = std::getenv(name); agent != nullptr && *agent != '\0') {
            return agent;
        }
    }
    return "ssh";
}

/// Reads a hostfile. Each line is a host with an optional `slots=<number>`; the default is one per
/// processor. Other settings and what follows a '#' are ignored. Throws LaunchError: [RT-L11] if it
/// cannot be read, [RT-L12] if it is not a hostfile.
[[nodiscard]] inline std::vector<Host> read_hostfile(const std::string& path) {
    std::error_code error;
    std::ifstream file;
    if (std::filesystem::is_regular_file(path, error)) { // a pipe would block
        file.open(path);
    } else {
        file.setstate(std::ios::failbit);
    }
    std::vector<Host> hosts;
    int number = 0;
    for (std::string line; std::getline(file, line);) {
        const std::string where = detail::concat(path, ", line ", ++number);
        auto words = detail::strict(std::istringstream(line.substr(0, line.find('#'))));
        Host host;
        if (!(words >> host.name)) {
            continue;
        }
        if (host.name.find('=') != std::string::npos) {
            throw LaunchError(
                "RT-L12", detail::concat(where, ": expected the name of a host, not ", host.name));
        }
        require_host_name(host.name, where);
        for (std::string word; words >> word;) {
            constexpr std::string_view setting = "slots=";
            if (word.starts_with(setting)) {
                host.slots = slots_of(std::string_view(word).substr(setting.size()), where);
            }
        }
        add_host(hosts, std::move(host));
    }
    if (!file.eof()) {
        throw LaunchError("RT-L11", detail::concat("cannot read the hostfile ", path,
                                                   "; check its path and its permissions"));
    }
    return hosts;
}

/// Throws LaunchError [RT-L12] if an argument is not as mpirun expects it.
[[nodiscard]] inline HostArguments
read_host_arguments(const std::vector<std::string>& mpirun_args) {
    HostArguments result{.agent = agent_of_environment()};
    const auto is = [](const std::string& word, std::initializer_list<std::string_view> names) {
        return std::find(names.begin(), names.end(), word) != names.end();
    };
    for (std::size_t i = 0; i < mpirun_args.size(); ++i) {
        const std::string& word = mpirun_args[i];
        const bool file = is(word, {"--hostfile", "-hostfile", "--machinefile", "-machinefile"});
        const bool hosts = is(word, {"--host", "-host", "-H"});
        if (!file && !hosts) {
            result.others.push_back(word);
            if (is(word, {"plm_rsh_agent", "plm_ssh_agent"}) && i + 1 < mpirun_args.size()) {
                result.agent = mpirun_args[i + 1];
            }
            continue;
        }
        if (++i == mpirun_args.size()) {
            throw LaunchError("RT-L12", detail::concat("mpirun_args ends in ", word,
                                                       ", which needs a value; add it"));
        }
        if (file) {
            result.files.push_back(mpirun_args[i]);
        } else {
            add_host_list(result.hosts, mpirun_args[i]);
        }
    }
    return result;
}

/// Returns the effective hosts: those of --host, restricted to the files if there are any. Reads
/// the files.
[[nodiscard]] inline std::vector<Host> hosts_of(const HostArguments& arguments) {
    if (arguments.files.empty()) {
        return arguments.hosts;
    }
    std::vector<Host> hosts;
    for (const std::string& path : arguments.files) {
        for (Host& host : read_hostfile(path)) {
            const bool meant = arguments.hosts.empty() ||
                               std::any_of(arguments.hosts.begin(), arguments.hosts.end(),
                                           [&](const Host& one) { return one.name == host.name; });
            if (meant) {
                add_host(hosts, std::move(host));
            }
        }
    }
    return hosts;
}

} // namespace rtrain::launch
