// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gathers a batch of rows from several parts: blocks of a file, or concatenated data sets.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/rows.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace rtrain::data {

/// The part and row of an element.
struct PartRow {
    std::int64_t part;
    std::int64_t row; ///< in the part
};

/// Finds `row` in consecutive parts; `ends` has the end of each.
[[nodiscard]] inline PartRow locate_row(const std::vector<std::int64_t>& ends, std::int64_t row) {
    const auto end = std::ranges::upper_bound(ends, row);
    return {end - ends.begin(), end == ends.begin() ? row : row - *std::prev(end)};
}

/// The rows `indices` (int64, one dimension), in this order. `locate(index)` returns the position
/// of one; `rows_of(part, rows)` reads rows of a part, once for each part. If it omits some of
/// them, the others are returned part by part.
template <class Locate, class RowsOf>
[[nodiscard]] Batch gather_rows(const at::Tensor& indices, Locate&& locate, RowsOf&& rows_of) {
    struct Wanted {
        std::vector<std::int64_t> rows;   ///< in the part
        std::vector<std::int64_t> places; ///< in the batch
    };
    std::map<std::int64_t, Wanted> wanted;
    const at::Tensor numbers = indices.contiguous();
    const auto* const number = numbers.const_data_ptr<std::int64_t>();
    for (std::int64_t place = 0; place < numbers.numel(); ++place) {
        const PartRow at = locate(number[place]);
        wanted[at.part].rows.push_back(at.row);
        wanted[at.part].places.push_back(place);
    }
    std::vector<Batch> parts;
    at::Tensor order = at::empty({numbers.numel()}, at::kLong); // of the batch's rows in the parts
    auto* const place_of = order.mutable_data_ptr<std::int64_t>();
    std::int64_t gathered = 0;
    for (const auto& [part, of_part] : wanted) {
        for (const std::int64_t place : of_part.places) {
            place_of[place] = gathered++;
        }
        parts.push_back(rows_of(part, at::tensor(of_part.rows, at::kLong)));
    }
    if (parts.size() < 2) { // already in order
        return parts.empty() ? Batch() : std::move(parts.front());
    }
    Batch joined = concatenate(parts);
    return joined.size() == gathered ? select_rows(joined, order) : joined;
}

} // namespace rtrain::data
