// SPDX-License-Identifier: Apache-2.0
/// @file
/// The header of a safetensors file: an 8-byte little-endian length, then JSON with type, shape and
/// byte range of each tensor, padded with spaces; the rest of the file is the tensors' bytes.
/// Format: https://github.com/huggingface/safetensors#format
///
/// All of it is validated, because weights come from untrusted sources. This reader is stricter
/// than Python's safetensors 0.8: names are unique, at most 512 bytes long, and have no control
/// characters; at most a million tensors, of at most 16 dimensions; sizes fit into 63 bits, even if
/// another one is 0; a tensor has exactly the fields dtype, shape and data_offsets; types narrower
/// than a byte (F4, F6) are unknown; the first byte is '{'. Python can read every file accepted
/// here. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/parsing.hpp>
#include <rtrain/format/safetensors_handler.hpp>
#include <rtrain/format/safetensors_info.hpp>
#include <rtrain/storage/file/mapping.hpp>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/string_view.hpp>
#include <boost/json/value.hpp>
#include <boost/system/error_code.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {
namespace safetensors {

/// Throws std::invalid_argument if two tensors have the same name.
inline void check_names_differ(const std::vector<TensorInfo>& tensors) {
    std::vector<std::uint32_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](std::uint32_t left, std::uint32_t right) {
        return tensors[left].name < tensors[right].name;
    });
    const auto twice = std::adjacent_find(order.begin(), order.end(),
                                          [&](std::uint32_t left, std::uint32_t right) {
                                              return tensors[left].name == tensors[right].name;
                                          });
    if (twice != order.end()) {
        throw std::invalid_argument('"' + tensors[*twice].name + "\" comes twice");
    }
}

} // namespace safetensors

/// Reads and validates the header of a whole file; of the tensors' bytes, only the count is
/// checked. Throws std::invalid_argument with the cause. Uses memory for the header alone, a few
/// times its size.
[[nodiscard]] inline SafetensorsHeader parse_safetensors_header(std::span<const char> file) {
    using namespace safetensors;
    std::uint64_t length = 0;
    if (file.size() < sizeof length) {
        throw std::invalid_argument("it is shorter than 8 bytes");
    }
    std::memcpy(&length, file.data(), sizeof length);
    if (length > file.size() - sizeof length) {
        throw std::invalid_argument("its header is cut off");
    }
    if (length > max_header_size) {
        throw std::invalid_argument("its header is larger than 100 MB");
    }
    const std::string_view text(file.data() + sizeof length, static_cast<std::size_t>(length));
    if (!text.starts_with('{')) {
        throw std::invalid_argument("its header does not begin with '{'");
    }
    boost::json::parse_options options;
    options.max_depth = HeaderHandler::max_depth;
    boost::json::basic_parser<HeaderHandler> parser{options};
    SafetensorsHeader& header = parser.handler().header;
    constexpr std::size_t shortest = 48; // characters that describe a tensor
    header.tensors.reserve(std::min(max_tensors, text.size() / shortest));
    boost::system::error_code error;
    const std::size_t used = parser.write_some(false, text.data(), text.size(), error);
    if (error || used != text.size()) {
        throw std::invalid_argument("its header is malformed at byte " + std::to_string(used) +
                                    (error ? ": " + error.message() : ""));
    }
    check_names_differ(header.tensors);
    std::sort(header.tensors.begin(), header.tensors.end(),
              [](const TensorInfo& left, const TensorInfo& right) {
                  return std::pair(left.begin, left.end) < std::pair(right.begin, right.end);
              });
    std::uint64_t offset = 0;
    for (const TensorInfo& tensor : header.tensors) {
        if (tensor.begin != offset || tensor.end < tensor.begin) {
            throw std::invalid_argument('"' + tensor.name + "\" does not begin at byte " +
                                        std::to_string(offset) + " of the data");
        }
        if (tensor.end - tensor.begin != byte_count(tensor)) {
            throw std::invalid_argument('"' + tensor.name +
                                        "\" has a shape that does not match its data_offsets");
        }
        offset = tensor.end;
    }
    header.data_begin = sizeof length + text.size();
    if (offset != file.size() - header.data_begin) {
        throw std::invalid_argument("it holds " + std::to_string(file.size() - header.data_begin) +
                                    " bytes of data, but its tensors need " +
                                    std::to_string(offset));
    }
    return std::move(header);
}

/// Same for a mapped file. Throws CheckpointError [RT-K2] if it is damaged.
[[nodiscard]] inline SafetensorsHeader read_safetensors_header(const storage::Mapping& file,
                                                               const std::string& path) {
    return rtrain::detail::parsed(
        [&] { return parse_safetensors_header(file.bytes()); },
        [&](const char* why) {
            return CheckpointError(
                "RT-K2", rtrain::detail::concat(path, " is not a valid safetensors file: ", why));
        });
}

/// Returns the bytes that precede the data of `tensors`, which are laid out in this order; sets
/// their begin and end. Throws std::invalid_argument if a header cannot represent them.
[[nodiscard]] inline std::string
make_safetensors_header(std::span<TensorInfo> tensors,
                        const std::map<std::string, std::string>& metadata = {}) {
    using namespace safetensors;
    const auto quoted = [](std::string_view text) {
        return boost::json::serialize(boost::json::value(boost::json::string_view(text)));
    };
    std::string text(sizeof(std::uint64_t), '\0');
    const auto next = [&] { text += text.size() == sizeof(std::uint64_t) ? '{' : ','; };
    if (!metadata.empty()) {
        next();
        text += quoted(metadata_key) + ":{";
        for (const auto& [key, value] : metadata) {
            text += text.back() == '{' ? "" : ",";
            text += quoted(key) + ':' + quoted(value);
        }
        text += '}';
    }
    std::uint64_t offset = 0;
    for (TensorInfo& tensor : tensors) {
        check_tensor_name(tensor.name);
        if (tensor.shape.size() > max_rank) {
            throw std::invalid_argument('"' + tensor.name + "\" has more than 16 dimensions");
        }
        tensor.begin = offset;
        tensor.end = offset += byte_count(tensor);
        next();
        text +=
            quoted(tensor.name) + ":{\"dtype\":\"" + std::string(tensor.dtype) + "\",\"shape\":[";
        for (const std::int64_t size : tensor.shape) {
            text += text.back() == '[' ? "" : ",";
            text += std::to_string(size);
        }
        text += "],\"data_offsets\":[" + std::to_string(tensor.begin) + ',' +
                std::to_string(tensor.end) + "]}";
    }
    text += text.size() == sizeof(std::uint64_t) ? "{}" : "}";
    text.resize((text.size() + data_alignment - 1) / data_alignment * data_alignment, ' ');
    const std::uint64_t length = text.size() - sizeof length;
    if (tensors.size() > max_tensors || length > max_header_size) {
        throw std::invalid_argument("there are too many tensors for one file");
    }
    std::memcpy(text.data(), &length, sizeof length);
    return text;
}

} // namespace rtrain::checkpoint
