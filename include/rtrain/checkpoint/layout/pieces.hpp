// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reassembly of a tensor from its pieces.
#pragma once

#include <rtrain/checkpoint/layout/contents.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace rtrain::checkpoint {

/// Returns a copy of elements begin to end - 1 of the whole, in one dimension.
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

/// Returns the whole tensor.
[[nodiscard]] inline at::Tensor assemble(const Pieces& whole) {
    return assemble_elements(whole, 0, element_count(whole.shape)).view(whole.shape);
}

/// Returns rows begin to end - 1 of the whole.
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
