// SPDX-License-Identifier: Apache-2.0
/// @file
/// The header of a safetensors file: an 8-byte little-endian length, then JSON with type, shape and
/// byte range of each tensor, padded with spaces; the rest of the file is the tensors' bytes.
/// Format: https://github.com/huggingface/safetensors#format
///
/// Everything is checked before it is believed, because weights come from strangers. Where this
/// reader is stricter than Python's safetensors 0.8: a name comes once, is at most 512 bytes long
/// and has no control characters; at most a million tensors, of at most 16 dimensions; sizes fit
/// into 63 bits, also when another one is 0; a tensor has the three fields dtype, shape and
/// data_offsets, by name, and no others; types narrower than a byte (F4, F6) are unknown; the first
/// byte is '{'. Whatever is read here, Python reads. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/plain_text.hpp>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/string_view.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::checkpoint {

/// One tensor in a safetensors file.
struct TensorInfo {
    std::string name;
    /// A name of `safetensors::element_sizes`.
    std::string_view dtype;
    std::vector<std::int64_t> shape;
    /// First byte and the one behind the last, counted from `SafetensorsHeader::data_begin`.
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

struct SafetensorsHeader {
    /// In the order of their bytes, which follow each other without a gap.
    std::vector<TensorInfo> tensors;
    std::map<std::string, std::string> metadata;
    /// Where the bytes begin in the file.
    std::size_t data_begin = 0;
};

namespace safetensors {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

inline constexpr std::size_t max_header_size = 100'000'000;
inline constexpr std::size_t max_tensors = 1'000'000;
inline constexpr std::size_t max_rank = 16;
inline constexpr std::size_t max_tensor_name_size = 512;
/// Data written here begins at a multiple of this.
inline constexpr std::size_t data_alignment = 64;
inline constexpr std::string_view metadata_key = "__metadata__";

/// Bytes of one element.
inline constexpr std::array<std::pair<std::string_view, std::uint64_t>, 19> element_sizes{{
    {"BOOL", 1},    {"U8", 1},          {"I8", 1},          {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}, {"I16", 2},     {"U16", 2},
    {"F16", 2},     {"BF16", 2},        {"I32", 4},         {"U32", 4},     {"F32", 4},
    {"F64", 8},     {"I64", 8},         {"U64", 8},         {"C64", 8},
}};

/// The entry of `element_sizes` with this name; throws std::invalid_argument when there is none.
[[nodiscard]] inline const std::pair<std::string_view, std::uint64_t>&
element_type(std::string_view name) {
    const auto* const found = std::find_if(element_sizes.begin(), element_sizes.end(),
                                           [&](const auto& item) { return item.first == name; });
    if (found == element_sizes.end()) {
        throw std::invalid_argument("unknown type");
    }
    return *found;
}

/// Throws std::invalid_argument when a tensor cannot be called so.
inline void check_tensor_name(std::string_view name) {
    if (name.size() > max_tensor_name_size) {
        throw std::invalid_argument("a name is longer than 512 bytes");
    }
    if (!is_plain_text(name)) {
        throw std::invalid_argument("a name has control characters or is not UTF-8");
    }
    if (name == metadata_key) {
        throw std::invalid_argument("a tensor is called __metadata__");
    }
}

/// Bytes of a tensor. Throws std::invalid_argument when they, or their strides, exceed 63 bits.
[[nodiscard]] inline std::uint64_t byte_count(const TensorInfo& tensor) {
    constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    std::uint64_t bytes = element_type(tensor.dtype).second;
    bool empty = false;
    for (const std::int64_t size : tensor.shape) {
        const auto factor = static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1));
        if (size < 0 || bytes > limit / factor) {
            throw std::invalid_argument('"' + tensor.name + "\" has an impossible shape");
        }
        bytes *= factor;
        empty = empty || size == 0;
    }
    return empty ? 0 : bytes;
}

/// Takes the header's JSON apart as it is parsed, so that no tree is built that a hostile file
/// could blow up.
class HeaderHandler {
public:
    static constexpr std::size_t max_object_size = max_tensors + 1;
    static constexpr std::size_t max_array_size = max_rank;
    static constexpr std::size_t max_key_size = max_header_size;
    static constexpr std::size_t max_string_size = max_header_size;
    /// The header, a tensor, its shape.
    static constexpr std::size_t max_depth = 3;

    using Error = boost::json::error_code;
    using Text = boost::json::string_view;

    SafetensorsHeader header;

    bool on_document_begin(Error& /*error*/) { return true; }
    bool on_document_end(Error& /*error*/) { return true; }
    bool on_object_begin(Error& /*error*/) {
        switch (place_) {
        case Place::start:
            place_ = Place::root;
            return true;
        case Place::metadata_value:
            place_ = Place::metadata;
            return true;
        case Place::tensor_value:
            place_ = Place::tensor;
            fields_ = {};
            return true;
        default:
            throw unexpected("an object");
        }
    }
    bool on_object_end(std::size_t /*size*/, Error& /*error*/) {
        if (place_ == Place::tensor) {
            for (std::size_t field = 0; field < field_names.size(); ++field) {
                if (!fields_.at(field)) {
                    throw std::invalid_argument(in_tensor() + " has no " +
                                                std::string(field_names.at(field)));
                }
            }
        }
        place_ = Place::root;
        return true;
    }
    bool on_array_begin(Error& /*error*/) {
        if (place_ != Place::field || field_ == Field::dtype) {
            throw unexpected("an array");
        }
        place_ = Place::numbers;
        count_ = 0;
        return true;
    }
    bool on_array_end(std::size_t size, Error& /*error*/) {
        if (field_ == Field::data_offsets && size != 2) {
            throw std::invalid_argument(in_tensor() + " has not two data_offsets");
        }
        place_ = Place::tensor;
        return true;
    }
    bool on_key_part(Text text, std::size_t /*size*/, Error& /*error*/) { return append(text); }
    bool on_key(Text text, std::size_t /*size*/, Error& /*error*/) {
        append(text);
        const std::string key = std::exchange(text_, {});
        if (place_ == Place::metadata) {
            key_ = key;
        } else if (place_ == Place::tensor) {
            const auto* const found = std::find(field_names.begin(), field_names.end(), key);
            if (found == field_names.end()) {
                throw std::invalid_argument(in_tensor() + " has an unknown field");
            }
            field_ = static_cast<Field>(found - field_names.begin());
            if (std::exchange(fields_.at(static_cast<std::size_t>(field_)), true)) {
                throw std::invalid_argument(in_tensor() + " has " + key + " twice");
            }
            place_ = Place::field;
        } else if (key == metadata_key) {
            if (std::exchange(has_metadata_, true)) {
                throw std::invalid_argument("it has __metadata__ twice");
            }
            place_ = Place::metadata_value;
        } else {
            check_tensor_name(key);
            if (header.tensors.size() == max_tensors) {
                throw std::invalid_argument("it has more than 1000000 tensors");
            }
            header.tensors.emplace_back().name = key;
            place_ = Place::tensor_value;
        }
        return true;
    }
    bool on_string_part(Text text, std::size_t /*size*/, Error& /*error*/) { return append(text); }
    bool on_string(Text text, std::size_t /*size*/, Error& /*error*/) {
        append(text);
        std::string value = std::exchange(text_, {});
        if (place_ == Place::metadata) {
            if (!header.metadata.emplace(std::move(key_), std::move(value)).second) {
                throw std::invalid_argument("a key of __metadata__ comes twice");
            }
        } else if (place_ == Place::field && field_ == Field::dtype) {
            try {
                header.tensors.back().dtype = element_type(value).first;
            } catch (const std::invalid_argument&) {
                throw std::invalid_argument(in_tensor() + " has an unknown type");
            }
            place_ = Place::tensor;
        } else {
            throw unexpected("a string");
        }
        return true;
    }
    bool on_number_part(Text /*text*/, Error& /*error*/) { return true; }
    bool on_int64(std::int64_t value, Text text, Error& /*error*/) {
        if (value < 0 || text.starts_with('-')) { // "-0" is no size
            throw unexpected("a negative number");
        }
        return number(static_cast<std::uint64_t>(value));
    }
    bool on_uint64(std::uint64_t value, Text /*text*/, Error& /*error*/) { return number(value); }
    bool on_double(double /*value*/, Text /*text*/, Error& /*error*/) {
        throw unexpected("a number that is no 64-bit integer");
    }
    bool on_bool(bool /*value*/, Error& /*error*/) { throw unexpected("a boolean"); }
    bool on_null(Error& /*error*/) {
        if (place_ != Place::metadata_value) {
            throw unexpected("null");
        }
        place_ = Place::root;
        return true;
    }
    bool on_comment_part(Text /*text*/, Error& /*error*/) { return true; }
    bool on_comment(Text /*text*/, Error& /*error*/) { return true; }

private:
    enum class Place : unsigned char {
        start,
        root,
        metadata_value,
        metadata,
        tensor_value,
        tensor,
        field,
        numbers
    };
    enum class Field : unsigned char { dtype, shape, data_offsets };
    static constexpr std::array<std::string_view, 3> field_names{"dtype", "shape", "data_offsets"};

    bool append(Text text) {
        text_.append(text.data(), text.size());
        return true;
    }
    bool number(std::uint64_t value) {
        if (place_ != Place::numbers) {
            throw unexpected("a number");
        }
        TensorInfo& tensor = header.tensors.back();
        if (field_ == Field::data_offsets) {
            (count_++ == 0 ? tensor.begin : tensor.end) = value;
            return true;
        }
        if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
            throw std::invalid_argument(in_tensor() + " has an impossible shape");
        }
        tensor.shape.push_back(static_cast<std::int64_t>(value));
        return true;
    }
    [[nodiscard]] std::string in_tensor() const {
        return header.tensors.empty() ? "it" : '"' + header.tensors.back().name + '"';
    }
    [[nodiscard]] std::invalid_argument unexpected(const char* what) const {
        const bool inside = place_ >= Place::tensor_value;
        return std::invalid_argument((inside ? in_tensor() : "its header") + " has " + what +
                                     " in the wrong place");
    }

    Place place_ = Place::start;
    Field field_ = Field::dtype;
    std::array<bool, 3> fields_{};
    std::size_t count_ = 0;
    bool has_metadata_ = false;
    std::string text_;
    std::string key_;
};

/// Throws std::invalid_argument when two tensors have one name.
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

/// Reads and checks the header of a whole file; of the tensors' bytes only the number is looked at.
/// Throws std::invalid_argument saying what is wrong. Takes memory for the header alone, a few
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
    boost::json::error_code error;
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
                                        "\" has a shape that does not fit its data_offsets");
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

/// The bytes that come before the data of `tensors`, which are laid out in this order: sets their
/// begin and end. Throws std::invalid_argument for what no header can say.
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
            text += (text.back() == '{' ? "" : ",") + quoted(key) + ':' + quoted(value);
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
            text += (text.back() == '[' ? "" : ",") + std::to_string(size);
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
