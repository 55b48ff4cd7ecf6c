// SPDX-License-Identifier: Apache-2.0
/// @file
/// The contents of a safetensors header, and its limits. Cost tier 0: std only.
#pragma once

#include <rtrain/base/text/plain_text.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

/// One tensor in a safetensors file.
struct TensorInfo {
    std::string name;
    /// An entry of `safetensors::element_sizes`.
    std::string_view dtype;
    std::vector<std::int64_t> shape;
    /// First byte, and one past the last, relative to `SafetensorsHeader::data_begin`.
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

struct SafetensorsHeader {
    /// In the order of their bytes, which are contiguous.
    std::vector<TensorInfo> tensors;
    std::map<std::string, std::string> metadata;
    /// Offset of the data in the file.
    std::size_t data_begin = 0;
};

namespace safetensors {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

inline constexpr std::size_t max_header_size = 100'000'000;
inline constexpr std::size_t max_tensors = 1'000'000;
inline constexpr std::size_t max_rank = 16;
inline constexpr std::size_t max_tensor_name_size = 512;
/// Alignment of the data in files written here.
inline constexpr std::size_t data_alignment = 64;
inline constexpr std::string_view metadata_key = "__metadata__";

/// Bytes per element.
inline constexpr std::array<std::pair<std::string_view, std::uint64_t>, 19> element_sizes{{
    {"BOOL", 1},    {"U8", 1},          {"I8", 1},          {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}, {"I16", 2},     {"U16", 2},
    {"F16", 2},     {"BF16", 2},        {"I32", 4},         {"U32", 4},     {"F32", 4},
    {"F64", 8},     {"I64", 8},         {"U64", 8},         {"C64", 8},
}};

/// Returns the entry of `element_sizes` with this name; throws std::invalid_argument if there is
/// none.
[[nodiscard]] inline const std::pair<std::string_view, std::uint64_t>&
element_type(std::string_view name) {
    const auto* const found = std::find_if(element_sizes.begin(), element_sizes.end(),
                                           [&](const auto& item) { return item.first == name; });
    if (found == element_sizes.end()) {
        throw std::invalid_argument("unknown type");
    }
    return *found;
}

/// Throws std::invalid_argument if the name is not valid for a tensor.
inline void check_tensor_name(std::string_view name) {
    if (name.size() > max_tensor_name_size) {
        throw std::invalid_argument("a name is longer than 512 bytes");
    }
    if (!is_plain_text(name)) {
        throw std::invalid_argument("a name has control characters or is not UTF-8");
    }
    if (name == metadata_key) {
        throw std::invalid_argument("a tensor is named __metadata__");
    }
}

/// Returns the bytes of a tensor. Throws std::invalid_argument if they, or its strides, exceed 63
/// bits.
[[nodiscard]] inline std::uint64_t byte_count(const TensorInfo& tensor) {
    constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    std::uint64_t bytes = element_type(tensor.dtype).second;
    bool empty = false;
    for (const std::int64_t size : tensor.shape) {
        const auto factor = static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1));
        if (size < 0 || bytes > limit / factor) {
            throw std::invalid_argument('"' + tensor.name + "\" has an invalid shape");
        }
        bytes *= factor;
        empty = empty || size == 0;
    }
    return empty ? 0 : bytes;
}

} // namespace safetensors
} // namespace rtrain::checkpoint
