// SPDX-License-Identifier: Apache-2.0
/// @file
/// One configuration for all: every rank runs main(), and what main() takes from its surroundings,
/// such as standard input, the time or a random device, need not be the same everywhere.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/config.hpp>

#include <optional>
#include <string>
#include <utility>

namespace rtrain::detail {

/// The first key that two configurations do not have alike, with both values.
[[nodiscard]] inline std::string first_difference(const Config& mine, const Config& theirs) {
    const auto text = [](const boost::json::value* value) {
        constexpr std::size_t longest = 200;
        return value == nullptr ? "unset" : json::serialize(*value).substr(0, longest);
    };
    for (const auto* const side : {&mine, &theirs}) {
        for (const auto& item : *side) {
            const auto* const left = mine.if_contains(item.key());
            const auto* const right = theirs.if_contains(item.key());
            if (left == nullptr || right == nullptr || *left != *right) {
                return concat('"', std::string(item.key()), "\" is ", text(left), " against ",
                              text(right));
            }
        }
    }
    return "";
}

/// Throws ConfigError [RT-C25] on all ranks when one has another configuration than rank 0, or than
/// the driver as far as that is known. *Collective.*
inline void require_same_config(HookRanks& backend, const Config& config,
                                const std::optional<Config>& driver) {
    // As it is read again, where NaN has become null.
    const Config mine = json::parse(json::serialize(config)).as_object();
    const auto first = json::parse(broadcast(backend, json::serialize(mine), 0)).as_object();
    succeed_together(backend, [&] {
        for (const auto& [whose, other] :
             {std::pair("rank 0's", std::optional(first)), std::pair("the driver's", driver)}) {
            if (other && mine != *other) {
                throw ConfigError("RT-C25",
                                  concat("TrainerOptions::config differs from ", whose, ": ",
                                         first_difference(mine, *other),
                                         "; main() must make the same one in every process: it "
                                         "runs in each rank, and in the driver, so what differs "
                                         "there (standard input, the time, random numbers) belongs "
                                         "into arguments, files or the environment"));
            }
        }
    });
}

} // namespace rtrain::detail
