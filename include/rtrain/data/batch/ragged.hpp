// SPDX-License-Identifier: Apache-2.0
/// @file
/// A column whose rows have different lengths: text, lists.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rtrain::data {

/// Row i has the values [offsets[i], offsets[i + 1]). Text is its UTF-8 bytes (uint8).
///
/// @code
/// const auto& text = batch.ragged("text");
/// for (std::int64_t row = 0; row < text.size(); ++row) { std::cout << text.text(row) << '\n'; }
/// @endcode
struct Ragged {
    at::Tensor values;  ///< of all rows, concatenated; the first dimension counts them
    at::Tensor offsets; ///< int64 of shape (rows + 1), from 0, non-decreasing

    /// Number of rows.
    [[nodiscard]] std::int64_t size() const { return offsets.size(0) - 1; }

    /// The values of a row; shares memory with `values`.
    [[nodiscard]] at::Tensor operator[](std::int64_t row) const {
        const auto* const offset = offsets.const_data_ptr<std::int64_t>();
        return values.slice(0, offset[row], offset[row + 1]);
    }

    /// A row of bytes on the CPU; valid as long as `values`.
    [[nodiscard]] std::string_view text(std::int64_t row) const {
        const auto* const offset = offsets.const_data_ptr<std::int64_t>();
        const auto* const bytes = static_cast<const char*>(
            static_cast<const void*>(values.const_data_ptr<std::uint8_t>()));
        return {bytes + offset[row], static_cast<std::size_t>(offset[row + 1] - offset[row])};
    }
};

} // namespace rtrain::data
