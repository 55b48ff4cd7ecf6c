// SPDX-License-Identifier: Apache-2.0
/// @file
/// The checkpoint policies Sharded and AsyncSharded: every rank writes its part.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>
#include <rtrain/checkpoint/policy/policy.hpp>

namespace rtrain::checkpoint {

/// Every rank writes an equal share of the state at the same time, into
/// `shard-<rank>-of-<ranks>.safetensors`, and training waits. Tensors that have the same bits on
/// all ranks are divided among them, so no byte is written twice. Of a tensor saved by rows
/// (StateWriter::rows) each rank writes its own rows. Rank 0 writes tensors that may differ between
/// ranks, such as a model's buffers. Any number of ranks loads it.
struct Sharded {
    /// Each rank writes the rows it has: per-rank values need not be sent to rank 0.
    static constexpr bool takes_rows = true;

    /// Returns this rank's share, which refers to the live tensors.
    [[nodiscard]] Snapshot select(Snapshot state, const Part& part) const;

    [[nodiscard]] Contents write(const Snapshot& mine, const Part& part) const;

    /// Throws CheckpointError [RT-K1] if the checkpoint has no state.
    [[nodiscard]] Snapshot read(const Part& part) const;
};

/// Like Sharded, but training continues while each rank writes a copy of its share; see Async.
struct AsyncSharded : Sharded {
    static constexpr bool writes_in_background = true;
};

static_assert(CheckpointPolicy<Sharded> && CheckpointPolicy<AsyncSharded>);

} // namespace rtrain::checkpoint

#ifndef RTRAIN_COMPILED
#include <rtrain/checkpoint/policy/sharded_definitions.hpp>
#endif
