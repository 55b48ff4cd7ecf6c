// SPDX-License-Identifier: Apache-2.0
/// @file
/// Resources of a trial, and the number of trials that fit on a machine. Pure.
#pragma once

#include <rtrain/base/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::tune {

/// Resources of one trial: cores, and GPUs, which trials may share.
struct Resources {
    /// Cores, 0 or more. Fractions share a core: with 0.5, two trials run on one.
    double cpus = 1;
    /// GPUs, 0 or more. Below 1, any fraction: with 0.5, two trials share a GPU. Above 1, a whole
    /// number.
    double gpus = 0;

    friend bool operator==(const Resources&, const Resources&) noexcept = default;
};

/// Resources of a machine.
struct Machine {
    int cpus = 1; ///< cores that this process may use
    int gpus = 0; ///< visible to this process
};

/// The resources of one of the concurrent trials.
struct Place {
    std::vector<int> gpus{}; ///< by their index on the machine; several places may share one
    /// Cores to which its current trial is bound; empty: not bound.
    std::vector<int> cores{};
    int slot = 0; ///< the rank of one mpirun that runs it (tune/ranks/slots.hpp)

    friend bool operator==(const Place&, const Place&) = default;
};

namespace internal {

/// Throws ConfigError [RT-U103].
inline void check_resources(const Resources& each, const Machine& machine) {
    using detail::concat;
    if (!(each.cpus >= 0 && each.gpus >= 0) || std::isinf(each.cpus) || std::isinf(each.gpus)) {
        throw ConfigError("RT-U103", concat("resources_per_trial has ", each.cpus, " cpus and ",
                                            each.gpus, " gpus; expected 0 or more of each"));
    }
    if (each.gpus > 1 && each.gpus != std::floor(each.gpus)) {
        throw ConfigError("RT-U103", concat("resources_per_trial has ", each.gpus,
                                            " gpus; expected a whole number above 1, or a fraction "
                                            "below"));
    }
    if (each.cpus > machine.cpus || each.gpus > machine.gpus) {
        throw ConfigError("RT-U103", concat("a trial takes ", each.cpus, " cpus and ", each.gpus,
                                            " gpus, but this machine has only ", machine.cpus,
                                            " and ", machine.gpus, "; reduce resources_per_trial"));
    }
}

/// Number of parts of size `each` that fit into `whole`, tolerating rounding errors.
[[nodiscard]] inline int times(double whole, double each) {
    constexpr double slack = 1e-9;
    return static_cast<int>(std::floor(whole / each + slack));
}

} // namespace internal

/// The places for concurrent trials: as many as fit on the machine, at least one, at most
/// `max_concurrent` if that is not 0. A place has whole GPUs, or shares one; the first GPUs are
/// filled first. Throws ConfigError [RT-U103] when a trial needs more than the machine has.
[[nodiscard]] inline std::vector<Place> places_for(const Resources& each, const Machine& machine,
                                                   int max_concurrent = 0) {
    internal::check_resources(each, machine);
    const int most =
        each.gpus > 0 || max_concurrent > 0 ? std::numeric_limits<int>::max() : machine.cpus;
    int count = each.cpus > 0 ? internal::times(machine.cpus, each.cpus) : most;
    const bool shared = each.gpus > 0 && each.gpus < 1;
    const int per_gpu = shared ? internal::times(1, each.gpus) : 0;
    if (shared) {
        count = std::min(count, machine.gpus * per_gpu);
    } else if (each.gpus > 0) {
        count = std::min(count, machine.gpus / static_cast<int>(each.gpus));
    }
    if (max_concurrent > 0) {
        count = std::min(count, max_concurrent);
    }
    std::vector<Place> places(static_cast<std::size_t>(std::max(count, 1)));
    for (int i = 0; i < static_cast<int>(places.size()); ++i) {
        std::vector<int>& gpus = places[static_cast<std::size_t>(i)].gpus;
        if (shared) {
            gpus = {i / per_gpu};
        } else {
            const int whole = static_cast<int>(each.gpus);
            for (int g = 0; g < whole; ++g) {
                gpus.push_back(i * whole + g);
            }
        }
    }
    return places;
}

/// Number of cores for exclusive use by a trial: none if trials share cores.
[[nodiscard]] inline std::size_t own_cores(const Resources& each) {
    return each.cpus == std::floor(each.cpus) ? static_cast<std::size_t>(each.cpus) : 0;
}

/// CUDA_VISIBLE_DEVICES for a process with these GPUs. `visible`: the variable of this process,
/// into whose list the GPUs are indices; none: not set.
[[nodiscard]] inline std::string visible_devices(const std::vector<int>& gpus,
                                                 const std::optional<std::string>& visible) {
    std::vector<std::string> names;
    for (std::size_t begin = 0; visible && begin <= visible->size();) {
        const std::size_t end = std::min(visible->find(',', begin), visible->size());
        names.push_back(visible->substr(begin, end - begin));
        begin = end + 1;
    }
    std::string list;
    for (const int gpu : gpus) {
        const auto at = static_cast<std::size_t>(gpu);
        list += (list.empty() ? "" : ",") + (at < names.size() ? names[at] : std::to_string(gpu));
    }
    return list;
}

} // namespace rtrain::tune
