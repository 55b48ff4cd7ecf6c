// SPDX-License-Identifier: Apache-2.0
/// @file
/// Handler of Boost.JSON's parser for the header of a safetensors file. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/format/safetensors_info.hpp>

#include <boost/json/error.hpp>
#include <boost/json/string_view.hpp>
#include <boost/system/error_code.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace rtrain::checkpoint::safetensors {

/// Processes the header's JSON while it is parsed, without a tree that a malicious file could
/// inflate.
class HeaderHandler {
public:
    static constexpr std::size_t max_object_size = max_tensors + 1;
    static constexpr std::size_t max_array_size = max_rank;
    static constexpr std::size_t max_key_size = max_header_size;
    static constexpr std::size_t max_string_size = max_header_size;
    /// Nesting: the header, a tensor, its shape.
    static constexpr std::size_t max_depth = 3;

    using Error = boost::system::error_code;
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
            throw std::invalid_argument(in_tensor() + " does not have two data_offsets");
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
        if (value < 0 || text.starts_with('-')) { // "-0" is not a size
            throw unexpected("a negative number");
        }
        return number(static_cast<std::uint64_t>(value));
    }
    bool on_uint64(std::uint64_t value, Text /*text*/, Error& /*error*/) { return number(value); }
    bool on_double(double /*value*/, Text /*text*/, Error& /*error*/) {
        throw unexpected("a number that is not a 64-bit integer");
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
            throw std::invalid_argument(in_tensor() + " has an invalid shape");
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

} // namespace rtrain::checkpoint::safetensors
