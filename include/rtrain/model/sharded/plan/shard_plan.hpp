// SPDX-License-Identifier: Apache-2.0
/// @file
/// The owners of the elements of a model's parameters, and the chunks in which gradients are sent.
#pragma once

#include <rtrain/comm/kernels/slices.hpp>
#include <rtrain/model/parameters/buckets.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rtrain::detail {

/// The slices of a parameter's memory, one for each owner. A parameter that is not contiguous has a
/// single owner, the first, so that a checkpoint can tell its elements by their order.
[[nodiscard]] inline comm::Slices slices_of(const at::Tensor& parameter, int owners) {
    const std::int64_t elements = parameter.numel();
    return comm::Slices::balanced(elements, parameter.is_contiguous() ? owners : 1);
}

/// The contents of a slot: a block for each owner, of equal length.
struct Chunk {
    /// The elements of each owner's slice from `from` on, at most `count`, at `offset` in its
    /// block.
    struct Member {
        std::size_t parameter = 0;
        std::int64_t from = 0;
        std::int64_t count = 0;
        std::int64_t offset = 0;
    };
    at::ScalarType type = at::kFloat;
    std::int64_t block = 0; ///< its length in elements
    std::vector<Member> members;
};

/// Plans chunks in the order of buckets (buckets.hpp). A parameter whose slices do not fit a slot
/// is split into several separate chunks. `types`: of the sums, by parameter.
[[nodiscard]] inline std::vector<Chunk> plan_chunks(const std::vector<NamedParameter>& parameters,
                                                    const std::vector<at::ScalarType>& types,
                                                    const std::vector<bool>& wanted, int owners,
                                                    std::int64_t slot_bytes) {
    constexpr std::int64_t line = 64; // elements, as in Slices
    std::vector<Chunk> chunks;
    bool is_open = false; // the last one can hold more
    for (std::size_t i = parameters.size(); i-- > 0;) {
        if (!wanted[i]) {
            continue;
        }
        const at::Tensor& parameter = parameters[i].tensor;
        const auto bytes = static_cast<std::int64_t>(c10::elementSize(types[i]));
        const std::int64_t room = std::max(line, slot_bytes / bytes / owners / line * line);
        const std::int64_t length = slices_of(parameter, owners).longest;
        if (length > room) {
            for (std::int64_t from = 0; from < length; from += room) {
                const std::int64_t count = std::min(room, length - from);
                chunks.push_back({types[i], count, {{i, from, count, 0}}});
            }
            is_open = false;
            continue;
        }
        if (!is_open || chunks.back().type != types[i] || chunks.back().block + length > room) {
            chunks.push_back({types[i], 0, {}});
            is_open = true;
        }
        chunks.back().members.push_back({i, 0, length, chunks.back().block});
        chunks.back().block += length;
    }
    return chunks;
}

/// With moments on a disk, bytes of parameters that a step processes at a time.
inline constexpr std::size_t bytes_stepped_at_once = std::size_t{4} << 20;

/// The least size of messages in which nodes exchange stepped weights, except for the last one.
inline constexpr std::int64_t bytes_of_weight_message = std::int64_t{4} << 20;

/// Calls `send(begin, end, bytes)` for the weights that are sent in one message, in their order;
/// `bytes_of(i)` is what a weight adds to each rank's row of it, `bytes` their sum.
template <class BytesOf, class Send>
void for_each_weight_message(std::size_t weights, BytesOf&& bytes_of, Send&& send) {
    std::size_t begin = 0;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < weights; ++i) {
        bytes += bytes_of(i);
        if (bytes >= bytes_of_weight_message || (i + 1 == weights && bytes > 0)) {
            send(begin, i + 1, bytes);
            begin = i + 1;
            bytes = 0;
        }
    }
}

/// Bytes of a slot that can hold any of the chunks, a multiple of 64.
[[nodiscard]] inline std::size_t slot_bytes_of(const std::vector<Chunk>& chunks, int owners) {
    std::size_t most = 64;
    for (const Chunk& chunk : chunks) {
        most = std::max(most, static_cast<std::size_t>(chunk.block * owners) *
                                  c10::elementSize(chunk.type));
    }
    return most;
}

} // namespace rtrain::detail
