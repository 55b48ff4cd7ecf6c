// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts of a tensor: slices that ranks reduce, or contribute, and pieces.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rtrain::comm {

/// Consecutive elements of a tensor.
struct Piece {
    std::int64_t begin = 0;
    std::int64_t elements = 0;
};

struct Slices {
    std::int64_t elements = 0;
    std::int64_t longest = 0; ///< elements of a slice; the last ones may be shorter, or empty

    /// Slices of whole cache lines, about equal.
    [[nodiscard]] static Slices balanced(std::int64_t elements, int parts) {
        constexpr std::int64_t line = 64; // at least: elements have one byte or more
        const std::int64_t fair = (elements + parts - 1) / parts;
        return {elements, (fair + line - 1) / line * line};
    }
    /// Slices of exactly `count` elements.
    [[nodiscard]] static Slices equal(std::int64_t count, int parts) {
        return {count * parts, count};
    }

    /// Parts beyond the last begin at the end and are empty.
    [[nodiscard]] std::int64_t begin(int part) const { return std::min(elements, longest * part); }
    [[nodiscard]] std::int64_t count(int part) const { return begin(part + 1) - begin(part); }
};

} // namespace rtrain::comm
