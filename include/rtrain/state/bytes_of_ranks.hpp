// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gathers the bytes that each rank saves, before anything is written.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/packed.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>

#include <cstddef>
#include <string>

namespace rtrain::checkpoint {

/// Gathers the bytes that StateWriter::bytes_of_rank() has saved on each rank. *Collective.* Throws
/// CheckpointError [RT-K5] if ranks have saved under different names.
inline void add_bytes_of_ranks(Snapshot& snapshot, HookRanks& ranks) {
    if (snapshot.of_rank.empty() || ranks.size() == 1) {
        return;
    }
    std::string names;
    for (const auto& [name, bytes] : snapshot.of_rank) {
        names += name + '\n';
    }
    detail::Packer mine;
    mine.put(names);
    for (const auto& [name, bytes] : snapshot.of_rank) {
        mine.put(detail::to_string(bytes));
    }
    const auto packed = detail::all_gather(ranks, mine.bytes());
    for (std::size_t rank = 0; rank < packed.size(); ++rank) {
        detail::Unpacker in(packed[rank]);
        if (const std::string theirs = in.take_text(); theirs != names) {
            throw CheckpointError(
                "RT-K5", detail::concat("the states of rank ", ranks.rank(), " and rank ", rank,
                                        " hold different metrics or generators: ", names, "and ",
                                        theirs, "give all ranks the same"));
        }
        for (const auto& [name, bytes] : snapshot.of_rank) {
            snapshot.tensors[name + '/' + std::to_string(rank)] = detail::to_bytes(in.take_text());
        }
    }
}

} // namespace rtrain::checkpoint
