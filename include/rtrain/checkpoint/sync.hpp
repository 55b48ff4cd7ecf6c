// SPDX-License-Identifier: Apache-2.0
/// @file
/// The checkpoint policies None, Sync and Async.
#pragma once

#include <rtrain/checkpoint/policy.hpp>
#include <rtrain/checkpoint/safetensors.hpp>
#include <rtrain/checkpoint/snapshot.hpp>
#include <rtrain/error.hpp>
#include <rtrain/json.hpp>
#include <rtrain/storage/file.hpp>

#include <string>

namespace rtrain::checkpoint {

/// Saves no states: `report(metrics, state)` records metrics only. Directories that the user
/// reports are still kept.
struct None {
    static constexpr bool saves_state = false;
    void write(const Snapshot& /*state*/, const Part& /*part*/) const {}
    [[nodiscard]] Snapshot read(const Part& part) const {
        throw CheckpointError("RT-K3", part.directory.string() +
                                           " cannot be loaded by checkpoint::None; use "
                                           "checkpoint::Sync to load states");
    }
};

/// Rank 0 writes the whole state and training waits: state.safetensors for tensors, state.json for
/// the rest.
struct Sync {
    void write(const Snapshot& state, const Part& part) const {
        if (part.rank != 0) {
            return;
        }
        safetensors::write(part.directory / "state.safetensors", state.tensors);
        storage::OutputFile file(part.directory / "state.json");
        file.write(json::serialize(state.values));
        file.sync();
    }

    /// Throws CheckpointError [RT-K1] when the checkpoint holds no state, for example because the
    /// user reported a directory of their own.
    [[nodiscard]] Snapshot read(const Part& part) const {
        const auto values = part.directory / "state.json";
        if (!std::filesystem::exists(values)) {
            throw CheckpointError("RT-K1", part.directory.string() +
                                               " holds no state (state.json); files that were "
                                               "reported as a Checkpoint are read through "
                                               "worker.checkpoint()");
        }
        return {safetensors::read(part.directory / "state.safetensors"),
                json::parse(storage::read_file(values)).as_object()};
    }
};

/// As Sync, but training goes on while rank 0 writes a copy of the state. At most one checkpoint is
/// under way: the next report of a checkpoint, and the end of the run, wait for it. What goes wrong
/// in writing is thrown there.
struct Async : Sync {
    static constexpr bool writes_in_background = true;
};

static_assert(CheckpointPolicy<None> && CheckpointPolicy<Sync> && CheckpointPolicy<Async>);

} // namespace rtrain::checkpoint
