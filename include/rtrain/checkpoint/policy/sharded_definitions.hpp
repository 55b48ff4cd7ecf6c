// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door sharded.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/layout/shard_plan.hpp>
#include <rtrain/checkpoint/policy/sharded.hpp>
#include <rtrain/checkpoint/policy/state_files.hpp>

#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

RTRAIN_DOOR Snapshot Sharded::select(Snapshot state, const Part& part) const {
    Snapshot mine;
    for (const std::string& name : state.of_rank_0) {
        auto tensor = state.tensors.extract(name);
        if (part.rank == 0) {
            mine.tensors.insert(std::move(tensor));
        }
    }
    std::vector<TensorSize> sizes;
    for (const auto& [name, tensor] : state.tensors) {
        sizes.push_back({tensor.numel(), static_cast<std::int64_t>(tensor.element_size())});
    }
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

RTRAIN_DOOR Contents Sharded::write(const Snapshot& mine, const Part& part) const {
    Contents contents = write_tensors(mine, part.directory, shard_file(part));
    if (part.rank == 0) {
        merge(contents, write_values(mine, part.directory));
    }
    return contents;
}

RTRAIN_DOOR Snapshot Sharded::read(const Part& part) const {
    return read_state(part.directory);
}

} // namespace rtrain::checkpoint
