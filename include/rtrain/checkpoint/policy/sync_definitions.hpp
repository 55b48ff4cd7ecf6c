// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door sync.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/policy/state_files.hpp>
#include <rtrain/checkpoint/policy/sync.hpp>

#include <utility>

namespace rtrain::checkpoint {

RTRAIN_DOOR Snapshot Sync::select(Snapshot state, const Part& part) const {
    if (part.rank == 0) {
        return state;
    }
    Snapshot mine;
    mine.pieces = std::move(state.pieces);
    return mine;
}

RTRAIN_DOOR Contents Sync::write(const Snapshot& mine, const Part& part) const {
    if (part.rank != 0) {
        Snapshot pieces;
        pieces.pieces = mine.pieces;
        return write_tensors(pieces, part.directory, shard_file(part));
    }
    Contents contents = write_tensors(mine, part.directory, "state.safetensors");
    merge(contents, write_values(mine, part.directory));
    return contents;
}

RTRAIN_DOOR Snapshot None::read(const Part& part) const {
    throw CheckpointError("RT-K3", part.directory.string() +
                                       " cannot be loaded by checkpoint::None; use "
                                       "checkpoint::Sync to load states");
}

RTRAIN_DOOR Snapshot Sync::read(const Part& part) const {
    return read_state(part.directory);
}

} // namespace rtrain::checkpoint
