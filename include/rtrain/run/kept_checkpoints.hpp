// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lists the checkpoints that rank 0 keeps, on all ranks.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/run/reported_checkpoint.hpp>

#include <boost/json/array.hpp>

#include <string>
#include <vector>

namespace rtrain::detail {

/// Oldest first. Calls `before` first, on rank 0. *Collective.*
template <class Before>
[[nodiscard]] std::vector<ReportedCheckpoint>
kept_checkpoints(HookRanks& backend, const checkpoint::Store& store, Before&& before) {
    std::string known;
    succeed_together(backend, [&] {
        if (backend.rank() == 0) {
            before();
            boost::json::array items;
            for (const auto& item : store.listing().committed) {
                items.push_back({{"name", item.name},
                                 {"metrics", item.metrics},
                                 {"status", to_string(item.status())}});
            }
            known = json::serialize(items);
        }
    });
    std::vector<ReportedCheckpoint> checkpoints;
    const auto items = json::parse(broadcast(backend, known, 0));
    for (const auto& item : items.as_array()) {
        checkpoints.push_back({store.checkpoint(std::string(item.at("name").as_string())),
                               item.at("metrics").as_object(),
                               checkpoint_status(item.at("status").as_string())});
    }
    return checkpoints;
}

} // namespace rtrain::detail
