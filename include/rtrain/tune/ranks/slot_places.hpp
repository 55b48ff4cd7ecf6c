// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chooses the ranks of one mpirun that are slots of a search, and the resources of each. Pure.
#pragma once

#include <rtrain/tune/resources/resources.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune {

/// A rank of the mpirun that a search runs in.
struct SlotRank {
    int rank = 0;
    std::string host{}; ///< equal for ranks on the same machine
    Machine machine{};
};

/// A place for each slot, in the order of ranks; rank 0 is always one. Each rank counts as a core.
/// A trial of several cores takes as many ranks of one machine, or all of its ranks if it has
/// fewer, and the first of them is its slot. `max_concurrent`: see places_for(). Throws ConfigError
/// [RT-U103].
[[nodiscard]] inline std::vector<Place> slot_places(const std::vector<SlotRank>& ranks,
                                                    const Resources& each, int max_concurrent = 0) {
    std::vector<Place> slots;
    std::vector<std::string> seen;
    for (const SlotRank& first : ranks) {
        if (std::find(seen.begin(), seen.end(), first.host) != seen.end()) {
            continue;
        }
        seen.push_back(first.host);
        std::vector<int> here;
        for (const SlotRank& rank : ranks) {
            if (rank.host == first.host) {
                here.push_back(rank.rank);
            }
        }
        internal::check_resources(each, first.machine);
        const int count = static_cast<int>(here.size());
        const Resources share{.cpus = std::min<double>(each.cpus, count), .gpus = each.gpus};
        auto places = places_for(share, {.cpus = count, .gpus = first.machine.gpus});
        const auto group = static_cast<std::size_t>(std::max(1.0, std::ceil(share.cpus)));
        places.resize(std::min(places.size(), here.size() / group));
        for (std::size_t i = 0; i < places.size(); ++i) {
            places[i].slot = here[i * group];
            slots.push_back(std::move(places[i]));
        }
    }
    std::sort(slots.begin(), slots.end(),
              [](const Place& a, const Place& b) { return a.slot < b.slot; });
    if (max_concurrent > 0 && slots.size() > static_cast<std::size_t>(max_concurrent)) {
        slots.resize(static_cast<std::size_t>(max_concurrent));
    }
    return slots;
}

} // namespace rtrain::tune
