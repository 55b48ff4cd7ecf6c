// SPDX-License-Identifier: Apache-2.0
/// @file
/// MDS, the shard format of MosaicML's streaming library: index.json, the samples in a shard, the
/// columns in a sample. Follows streaming/base/format/mds of https://github.com/mosaicml/streaming;
/// reads its version 2. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/storage/file/safe_name.hpp>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <boost/system/error_code.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::format {

/// A column of samples.
struct MdsColumn {
    std::string name;
    std::string encoding;   ///< "int", "ndarray:int16:2,3"
    std::uint32_t size = 0; ///< in bytes; 0: stored with each value
    friend bool operator==(const MdsColumn&, const MdsColumn&) = default;
};

struct MdsShard {
    std::string name; ///< file name, relative to the index
    std::uint64_t bytes = 0;
    std::int64_t samples = 0;
    std::string compression; ///< empty: none
    std::vector<MdsColumn> columns;
};

/// The type of the values of an encoding.
struct MdsType {
    std::string element;             ///< "int64"; empty: bytes of any length
    std::vector<std::int64_t> shape; ///< shape of each value
    std::uint32_t bytes = 0;         ///< bytes of each value; 0: any length
};

namespace mds {

/// Element types and their sizes in bytes.
inline constexpr std::array<std::pair<std::string_view, std::uint32_t>, 11> elements{
    {{"uint8", 1},
     {"uint16", 2},
     {"uint32", 4},
     {"uint64", 8},
     {"int8", 1},
     {"int16", 2},
     {"int32", 4},
     {"int64", 8},
     {"float16", 2},
     {"float32", 4},
     {"float64", 8}}};

/// Size of an element type in bytes; 0 if unknown.
[[nodiscard]] inline std::uint32_t bytes_of(std::string_view element) {
    const auto* const found =
        std::ranges::find(elements, element, &std::pair<std::string_view, std::uint32_t>::first);
    return found == elements.end() ? 0 : found->second;
}

[[nodiscard]] inline std::uint32_t number_at(std::string_view bytes, std::size_t place) {
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        number |= std::uint32_t{static_cast<unsigned char>(bytes[place + i])} << (8 * i);
    }
    return number;
}

[[nodiscard]] inline std::int64_t positive(const boost::json::value& value, const char* what) {
    const auto* const number = value.if_int64();
    if (number == nullptr || *number < 0) {
        throw std::invalid_argument(std::string(what) + " is not a non-negative integer");
    }
    return *number;
}

[[nodiscard]] inline std::string text(const boost::json::value& value, const char* what) {
    const auto* const found = value.if_string();
    if (found == nullptr) {
        throw std::invalid_argument(std::string(what) + " is not a string");
    }
    return std::string(found->begin(), found->end());
}

/// Returns a member; null if it is missing.
[[nodiscard]] inline const boost::json::value& member(const boost::json::value& object,
                                                      const char* name) {
    static const boost::json::value none;
    const auto* const found = object.is_object() ? object.as_object().if_contains(name) : nullptr;
    return found == nullptr ? none : *found;
}

[[nodiscard]] inline std::vector<MdsColumn> columns_of(const boost::json::value& shard) {
    const auto& names = member(shard, "column_names");
    const auto& encodings = member(shard, "column_encodings");
    const auto& sizes = member(shard, "column_sizes");
    if (!names.is_array() || !encodings.is_array() || !sizes.is_array() ||
        names.as_array().empty() || names.as_array().size() != encodings.as_array().size() ||
        names.as_array().size() != sizes.as_array().size()) {
        throw std::invalid_argument("column_names, column_encodings and column_sizes must be "
                                    "lists of equal length");
    }
    std::vector<MdsColumn> columns;
    for (std::size_t i = 0; i < names.as_array().size(); ++i) {
        const auto& size = sizes.as_array()[i];
        const std::int64_t bytes = size.is_null() ? 0 : positive(size, "a column's size");
        if (bytes > std::numeric_limits<std::uint32_t>::max()) {
            throw std::invalid_argument("a column's size is more than 4 GiB");
        }
        columns.push_back({.name = text(names.as_array()[i], "a column's name"),
                           .encoding = text(encodings.as_array()[i], "a column's encoding"),
                           .size = static_cast<std::uint32_t>(bytes)});
    }
    return columns;
}

} // namespace mds

/// Returns the shards listed in an index.json. Throws std::invalid_argument if the text is not an
/// index, has another version, or names files outside its directory.
[[nodiscard]] inline std::vector<MdsShard> parse_mds_index(std::string_view text) {
    boost::system::error_code error;
    const auto index =
        boost::json::parse(boost::json::string_view(text.data(), text.size()), error);
    if (error) {
        throw std::invalid_argument("not valid JSON: " + error.message());
    }
    const auto& version = mds::member(index, "version");
    if (!version.is_int64() || version.as_int64() != 2 ||
        !mds::member(index, "shards").is_array()) {
        throw std::invalid_argument("expected \"version\": 2 and a list of \"shards\"");
    }
    std::vector<MdsShard> shards;
    for (const auto& shard : mds::member(index, "shards").as_array()) {
        if (mds::text(mds::member(shard, "format"), "format") != "mds") {
            throw std::invalid_argument("the format of a shard is not \"mds\"");
        }
        const auto& raw = mds::member(shard, "raw_data");
        const auto& compression = mds::member(shard, "compression");
        shards.push_back(
            {.name = mds::text(mds::member(raw, "basename"), "basename"),
             .bytes = static_cast<std::uint64_t>(mds::positive(mds::member(raw, "bytes"), "bytes")),
             .samples = mds::positive(mds::member(shard, "samples"), "samples"),
             .compression = compression.is_null() ? "" : mds::text(compression, "compression"),
             .columns = mds::columns_of(shard)});
        if (!checkpoint::is_safe_name(shards.back().name)) {
            throw std::invalid_argument(
                "a shard's name is invalid or points outside the directory");
        }
    }
    return shards;
}

/// Returns the type of a column. Throws std::invalid_argument for unsupported encodings: Python
/// objects, lists, arrays whose shape is stored with each sample.
[[nodiscard]] inline MdsType mds_type(const MdsColumn& column) {
    std::string_view encoding = column.encoding;
    for (const std::string_view bytes : {"bytes", "str", "json", "jpeg", "png", "jpeg_array",
                                         "jpegarray", "str_int", "str_float", "str_decimal"}) {
        if (encoding == bytes) {
            return {};
        }
    }
    MdsType type;
    std::uint64_t count = 1;
    if (encoding == "int") {
        encoding = "int64";
    } else if (encoding.starts_with("ndarray:") &&
               encoding.find(':', 8) != std::string_view::npos) {
        const std::size_t colon = encoding.find(':', 8);
        std::string_view shape = encoding.substr(colon + 1);
        encoding = encoding.substr(8, colon - 8);
        while (!shape.empty()) {
            const std::string_view length = shape.substr(0, shape.find(','));
            std::int64_t number = 0;
            for (const char digit : length) {
                number = digit >= '0' && digit <= '9' && number < 1'000'000'000
                             ? number * 10 + (digit - '0')
                             : -1;
                if (number < 0) {
                    break;
                }
            }
            count *= static_cast<std::uint64_t>(std::max<std::int64_t>(number, 0));
            if (length.empty() || number < 1 || count > std::numeric_limits<std::uint32_t>::max()) {
                throw std::invalid_argument("the encoding " + column.encoding + " has no shape");
            }
            type.shape.push_back(number);
            shape.remove_prefix(std::min(length.size() + 1, shape.size()));
        }
    }
    const std::uint64_t bytes = count * mds::bytes_of(encoding);
    if (bytes == 0 || bytes != column.size) {
        throw std::invalid_argument("the encoding " + column.encoding +
                                    " is not supported; use bytes, str, json, int, numbers of "
                                    "fixed size, or ndarray with type and shape");
    }
    type.element = encoding;
    type.bytes = column.size;
    return type;
}

/// Returns `samples` + 1 file offsets, the bounds of a shard's samples. `table` is the beginning of
/// the shard, 4 × (samples + 2) bytes; `bytes` is the size of the shard. Throws
/// std::invalid_argument.
[[nodiscard]] inline std::vector<std::uint32_t>
mds_offsets(std::string_view table, std::int64_t samples, std::uint64_t bytes) {
    const auto count = static_cast<std::uint64_t>(samples);
    if (table.size() < 8 || table.size() / 4 != count + 2 || table.size() % 4 != 0 ||
        mds::number_at(table, 0) != count) {
        throw std::invalid_argument("it does not begin with the number of samples in the index, " +
                                    std::to_string(samples));
    }
    std::vector<std::uint32_t> offsets;
    offsets.reserve(table.size() / 4 - 1);
    for (std::size_t at = 4; at < table.size(); at += 4) {
        const std::uint32_t offset = mds::number_at(table, at);
        if (offset > bytes || offset < (offsets.empty() ? table.size() : offsets.back())) {
            throw std::invalid_argument("sample " + std::to_string(offsets.size()) +
                                        " has an offset outside the file, or before that of the "
                                        "previous sample");
        }
        offsets.push_back(offset);
    }
    return offsets;
}

/// Splits a sample into its columns. Throws std::invalid_argument unless they fill it exactly.
inline void split_mds_sample(std::string_view sample, const std::vector<MdsColumn>& columns,
                             std::vector<std::string_view>& values) {
    const auto variable =
        static_cast<std::size_t>(std::ranges::count(columns, std::uint32_t{0}, &MdsColumn::size));
    if (sample.size() / 4 < variable) {
        throw std::invalid_argument("it is too short for the sizes of its columns");
    }
    values.clear();
    std::size_t size_at = 0;
    std::string_view data = sample.substr(4 * variable);
    for (const MdsColumn& column : columns) {
        std::size_t size = column.size;
        if (size == 0) {
            size = mds::number_at(sample, size_at);
            size_at += 4;
        }
        if (size > data.size()) {
            throw std::invalid_argument("column \"" + column.name + "\" has " +
                                        std::to_string(size) + " bytes, but only " +
                                        std::to_string(data.size()) + " follow");
        }
        values.push_back(data.substr(0, size));
        data.remove_prefix(size);
    }
    if (!data.empty()) {
        throw std::invalid_argument(std::to_string(data.size()) + " bytes follow its columns");
    }
}

} // namespace rtrain::format
