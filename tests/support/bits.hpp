// SPDX-License-Identifier: Apache-2.0
/// @file
/// What programs leave for a test to compare: which rows they had, and a hash of their bits.
#pragma once

#include <rtrain/data/order/permutation.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace test {

/// A line for each row's number.
inline std::string lines_of(const at::Tensor& rows) {
    std::string text;
    for (std::int64_t i = 0; i < rows.numel(); ++i) {
        text += std::to_string(rows[i].item<std::int64_t>()) + "\n";
    }
    return text;
}

/// `hash`, with the bits of a tensor added.
inline std::uint64_t hash_of_bits(std::uint64_t hash, const at::Tensor& tensor) {
    const auto whole = tensor.detach().contiguous();
    const auto* const bytes = static_cast<const unsigned char*>(whole.const_data_ptr());
    for (std::size_t i = 0; i < whole.nbytes(); ++i) {
        hash = rtrain::data::hash_of(hash, bytes[i]);
    }
    return hash;
}

} // namespace test
