// SPDX-License-Identifier: Apache-2.0
/// @file
/// Putting a tensor that is in pieces together again.
#pragma once

#include <rtrain/checkpoint/contents.hpp>
#include <rtrain/checkpoint/snapshot.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace rtrain::checkpoint {

/// Elements begin to end - 1 of the whole, in one dimension; a copy.
[[nodiscard]] inline at::Tensor assemble_elements(const Pieces& whole, std::int64_t begin,
                                                  std::int64_t end) {
    at::Tensor flat = at::empty({end - begin}, whole.pieces.at(0).elements.options());
    for (const auto& piece : whole.pieces) {
        const std::int64_t from = std::max(begin, piece.begin);
        const std::int64_t to = std::min(end, piece.begin + piece.elements.numel());
        if (from < to) {
            flat.narrow(0, from - begin, to - from)
                .copy_(piece.elements.reshape({-1}).narrow(0, from - piece.begin, to - from));
        }
    }
    return flat;
}

/// The whole.
[[nodiscard]] inline at::Tensor assemble(const Pieces& whole) {
    return assemble_elements(whole, 0, element_count(whole.shape)).view(whole.shape);
}

/// Rows begin to end - 1 of the whole.
[[nodiscard]] inline at::Tensor assemble_rows(const Pieces& whole, std::int64_t begin,
                                              std::int64_t end) {
    auto shape = whole.shape;
    TORCH_CHECK(0 <= begin && begin <= end && end <= shape.at(0), "rows ", begin, " to ", end,
                " of a tensor that has ", shape.at(0));
    shape[0] = 1;
    const std::int64_t of_row = element_count(shape);
    shape[0] = end - begin;
    return assemble_elements(whole, begin * of_row, end * of_row).view(shape);
}

} // namespace rtrain::checkpoint
