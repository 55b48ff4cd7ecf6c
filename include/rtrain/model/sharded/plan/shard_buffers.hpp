// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory for the sums of chunks that a rank adds up: a separate room for each, or, when a sum is
/// consumed as soon as it is complete, rooms that are used in turns.
#pragma once

#include <rtrain/model/sharded/plan/shard_plan.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace rtrain::detail {

struct ShardBuffer {
    at::Tensor memory;      ///< one dimension, of the chunk's type
    std::int64_t begin = 0; ///< of the chunk's block, in elements
};

/// Separate rooms, by chunk; zeroed.
[[nodiscard]] inline std::vector<ShardBuffer> own_rooms(const std::vector<Chunk>& chunks,
                                                        const at::TensorOptions& where) {
    std::map<at::ScalarType, std::int64_t> lengths;
    std::vector<ShardBuffer> rooms;
    for (const Chunk& chunk : chunks) {
        rooms.push_back({{}, lengths[chunk.type]});
        lengths[chunk.type] += chunk.block;
    }
    std::map<at::ScalarType, at::Tensor> sums;
    for (const auto& [type, length] : lengths) {
        sums[type] = at::zeros({length}, where.dtype(type));
    }
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        rooms[c].memory = sums[chunks[c].type];
    }
    return rooms;
}

/// True for a chunk of the same parameter as the last one; such chunks are adjacent in a room.
[[nodiscard]] inline bool shares_room_with_the_last(const Chunk& chunk) {
    return chunk.members.front().from > 0;
}

/// Bytes of a room that fits any of the chunks.
[[nodiscard]] inline std::int64_t room_bytes_of(const std::vector<Chunk>& chunks) {
    constexpr std::int64_t line = 64;
    std::int64_t most = line;
    for (const Chunk& chunk : chunks) {
        const std::int64_t end = chunk.members.front().from + chunk.block;
        most = std::max(most, end * static_cast<std::int64_t>(c10::elementSize(chunk.type)));
    }
    return (most + line - 1) / line * line;
}

/// The rooms of chunks: `rooms` in turns, each consumed before its next turn.
[[nodiscard]] inline std::vector<ShardBuffer>
rotating_buffers(const std::vector<Chunk>& chunks, int rooms, const at::TensorOptions& where) {
    std::vector<at::Tensor> memory;
    for (int i = 0; i < rooms; ++i) {
        memory.push_back(at::empty({room_bytes_of(chunks)}, where.dtype(at::kByte)));
    }
    std::vector<ShardBuffer> places;
    std::size_t turn = 0;
    for (const Chunk& chunk : chunks) {
        if (!places.empty() && !shares_room_with_the_last(chunk)) {
            turn = (turn + 1) % memory.size();
        }
        places.push_back({memory[turn].view(chunk.type), chunk.members.front().from});
    }
    return places;
}

} // namespace rtrain::detail
