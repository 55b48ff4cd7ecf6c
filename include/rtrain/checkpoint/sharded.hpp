// SPDX-License-Identifier: Apache-2.0
/// @file
/// The checkpoint policies Sharded and AsyncSharded: every rank writes its part.
#pragma once

#include <rtrain/checkpoint/policy.hpp>
#include <rtrain/checkpoint/shard_plan.hpp>
#include <rtrain/checkpoint/snapshot.hpp>
#include <rtrain/checkpoint/state_files.hpp>

#include <cstdio>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

/// Every rank writes an equal share of the state at the same time, into
/// `shard-<rank>-of-<ranks>.safetensors`, and training waits. Tensors that all ranks hold are
/// divided among them, so no byte is written twice; of a tensor that was given row by row
/// (StateWriter::rows) each rank writes its own rows. Any number of ranks loads it.
struct Sharded {
    /// Each rank writes the rows it has: what is each rank's own need not go to rank 0.
    static constexpr bool takes_rows = true;

    /// This rank's share; refers to the live tensors.
    [[nodiscard]] Snapshot select(Snapshot state, const Part& part) const {
        std::vector<TensorSize> sizes;
        for (const auto& [name, tensor] : state.tensors) {
            sizes.push_back({tensor.numel(), static_cast<std::int64_t>(tensor.element_size())});
        }
        Snapshot mine;
        for (const Slice& slice : plan_shards(sizes, part.rank, part.size)) {
            const auto& [name, tensor] =
                *std::next(state.tensors.begin(), static_cast<std::ptrdiff_t>(slice.tensor));
            if (slice.count == tensor.numel()) {
                mine.tensors.emplace(name, tensor);
            } else {
                const at::Tensor flat = tensor.detach().reshape({-1});
                mine.pieces[name] = {tensor.sizes().vec(),
                                     {{slice.begin, flat.narrow(0, slice.begin, slice.count)}},
                                     false};
            }
        }
        mine.pieces.merge(state.pieces);
        if (part.rank == 0) {
            mine.values = std::move(state.values);
        }
        return mine;
    }

    [[nodiscard]] Contents write(const Snapshot& mine, const Part& part) const {
        char name[64];
        std::snprintf(name, sizeof name, "shard-%05d-of-%05d.safetensors", part.rank, part.size);
        Contents contents = write_tensors(mine, part.directory, name);
        if (part.rank == 0) {
            merge(contents, write_values(mine, part.directory));
        }
        return contents;
    }

    /// Throws CheckpointError [RT-K1] when the checkpoint holds no state.
    [[nodiscard]] Snapshot read(const Part& part) const { return read_state(part.directory); }
};

/// As Sharded, but training goes on while each rank writes a copy of its share; see Async.
struct AsyncSharded : Sharded {
    static constexpr bool writes_in_background = true;
};

static_assert(CheckpointPolicy<Sharded> && CheckpointPolicy<AsyncSharded>);

} // namespace rtrain::checkpoint
