// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that all ranks have the same configuration: every rank runs main(), whose inputs such as
/// standard input, time or random devices may differ between ranks.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/config.hpp>

#include <optional>
#include <string>
#include <utility>

namespace rtrain::detail {

/// Returns the first key that differs between two configurations, with both values.
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
                return concat('"', std::string(item.key()), "\" is ", text(left), " instead of ",
                              text(right));
            }
        }
    }
    return "";
}

/// Throws ConfigError [RT-C25] on all ranks if a rank's configuration differs from rank 0's, or
/// from the driver's if known. *Collective.*
inline void require_same_config(HookRanks& backend, const Config& config,
                                const std::optional<Config>& driver) {
    // Parsed back from JSON, where NaN has become null.
    const Config mine = json::parse(json::serialize(config)).as_object();
    const auto first = json::parse(broadcast(backend, json::serialize(mine), 0)).as_object();
    succeed_together(backend, [&] {
        for (const auto& [whose, other] :
             {std::pair("rank 0's", std::optional(first)), std::pair("the driver's", driver)}) {
            if (other && mine != *other) {
                throw ConfigError(
                    "RT-C25",
                    concat("TrainerOptions::config differs from ", whose, ": ",
                           first_difference(mine, *other),
                           "; make the same config in every process: main() runs in each rank and "
                           "in the driver, so pass what differs there (standard input, the time, "
                           "random numbers) in arguments, files or the environment"));
            }
        }
    });
}

} // namespace rtrain::detail
