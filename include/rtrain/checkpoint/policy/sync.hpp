// SPDX-License-Identifier: Apache-2.0
/// @file
/// The checkpoint policies None, Sync and Async, with which rank 0 writes what ranks have in
/// common.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>
#include <rtrain/checkpoint/policy/any_policy.hpp>
#include <rtrain/checkpoint/policy/policy.hpp>

#include <memory>

namespace rtrain::checkpoint {

/// Saves no states: `report(metrics, state)` records metrics only. Directories that the user
/// reports are still kept.
struct None {
    static constexpr bool saves_state = false;
    void write(const Snapshot& /*state*/, const Part& /*part*/) const {}
    [[nodiscard]] Snapshot read(const Part& part) const;
};

/// Rank 0 writes the state and training waits: state.safetensors for tensors, state.json for the
/// rest. Of tensors in parts, such as the optimizer state of a sharded model, and of per-rank
/// values, every rank writes its own, into `shard-<rank>-of-<ranks>.safetensors`.
struct Sync {
    static constexpr bool takes_rows = true;

    [[nodiscard]] Snapshot select(Snapshot state, const Part& part) const;

    [[nodiscard]] Contents write(const Snapshot& mine, const Part& part) const;

    /// Throws CheckpointError [RT-K1] if the checkpoint has no state.
    [[nodiscard]] Snapshot read(const Part& part) const;
};

/// Like Sync, but training continues while rank 0 writes a copy of the state. At most one
/// checkpoint is in flight: the next report of a checkpoint, and the end of the run, wait for it.
/// The next report throws an error in writing.
struct Async : Sync {
    static constexpr bool writes_in_background = true;
};

static_assert(CheckpointPolicy<None> && CheckpointPolicy<Sync> && CheckpointPolicy<Async>);

#ifdef RTRAIN_COMPILED
/// @cond
extern template std::shared_ptr<AnyPolicy> any_policy(Sync);
/// @endcond
#endif

} // namespace rtrain::checkpoint

#ifndef RTRAIN_COMPILED
#include <rtrain/checkpoint/policy/sync_definitions.hpp>
#endif
