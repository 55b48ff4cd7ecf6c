// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door json.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/text/clean_text.hpp>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_stack.hpp>
#include <boost/system/error_code.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace rtrain::json {

namespace internal {

/// Builds a value like Boost.JSON's parser, but converts doubles with std::from_chars.
class ExactHandler {
public:
    static constexpr std::size_t max_object_size = std::size_t{1} << 24;
    static constexpr std::size_t max_array_size = std::size_t{1} << 24;
    static constexpr std::size_t max_key_size = std::size_t{1} << 20;
    static constexpr std::size_t max_string_size = std::size_t{1} << 30;

    using Error = boost::system::error_code;
    using Text = boost::json::string_view;

    bool on_document_begin(Error& /*error*/) {
        stack_.reset();
        return true;
    }
    bool on_document_end(Error& /*error*/) { return true; }
    bool on_object_begin(Error& /*error*/) { return true; }
    bool on_object_end(std::size_t size, Error& /*error*/) {
        stack_.push_object(size);
        return true;
    }
    bool on_array_begin(Error& /*error*/) { return true; }
    bool on_array_end(std::size_t size, Error& /*error*/) {
        stack_.push_array(size);
        return true;
    }
    bool on_key_part(Text text, std::size_t /*size*/, Error& /*error*/) {
        stack_.push_chars(text);
        return true;
    }
    bool on_key(Text text, std::size_t /*size*/, Error& /*error*/) {
        stack_.push_key(text);
        return true;
    }
    bool on_string_part(Text text, std::size_t /*size*/, Error& /*error*/) {
        stack_.push_chars(text);
        return true;
    }
    bool on_string(Text text, std::size_t /*size*/, Error& /*error*/) {
        stack_.push_string(text);
        return true;
    }
    bool on_number_part(Text /*text*/, Error& /*error*/) { return true; }
    bool on_int64(std::int64_t value, Text /*text*/, Error& /*error*/) {
        stack_.push_int64(value);
        return true;
    }
    bool on_uint64(std::uint64_t value, Text /*text*/, Error& /*error*/) {
        stack_.push_uint64(value);
        return true;
    }
    bool on_double(double value, Text text, Error& /*error*/) {
        double exact = value;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exact);
        stack_.push_double(error == std::errc{} ? exact : value);
        return true;
    }
    bool on_bool(bool value, Error& /*error*/) {
        stack_.push_bool(value);
        return true;
    }
    bool on_null(Error& /*error*/) {
        stack_.push_null();
        return true;
    }
    bool on_comment_part(Text /*text*/, Error& /*error*/) { return true; }
    bool on_comment(Text /*text*/, Error& /*error*/) { return true; }

    boost::json::value release() { return stack_.release(); }

private:
    boost::json::value_stack stack_;
};

} // namespace internal

RTRAIN_DOOR boost::json::value parse(std::string_view text) {
    boost::json::basic_parser<internal::ExactHandler> parser{boost::json::parse_options{}};
    boost::system::error_code error;
    const std::size_t used = parser.write_some(false, text.data(), text.size(), error);
    if (error || used != text.size()) {
        throw std::invalid_argument("malformed JSON at byte " + std::to_string(used) +
                                    (error ? ": " + error.message() : ""));
    }
    return parser.handler().release();
}

RTRAIN_DOOR boost::json::object parse_object(std::string_view text) {
    boost::json::value value = parse(text);
    if (!value.is_object()) {
        throw std::invalid_argument("not a JSON object");
    }
    return std::move(value.get_object());
}

namespace internal {

inline void make_finite(boost::json::value& value) {
    if (const auto* const number = value.if_double()) {
        if (std::isnan(*number)) {
            value = nullptr;
        } else if (std::isinf(*number)) {
            value = *number > 0 ? "inf" : "-inf";
        }
    } else if (auto* const object = value.if_object()) {
        for (auto& item : *object) {
            make_finite(item.value());
        }
    } else if (auto* const array = value.if_array()) {
        for (auto& item : *array) {
            make_finite(item);
        }
    }
}

} // namespace internal

RTRAIN_DOOR boost::json::value finite(boost::json::value value) {
    internal::make_finite(value);
    return value;
}

RTRAIN_DOOR std::string serialize(const boost::json::value& value) {
    std::string text = boost::json::serialize(finite(value));
    const bool is_ascii = std::all_of(text.begin(), text.end(),
                                      [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    return is_ascii ? text : json::clean_text(text, text.size());
}

RTRAIN_DOOR std::optional<double> number(const boost::json::value& value) noexcept {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    if (value.is_number()) {
        return value.to_number<double>();
    }
    return value.is_null()   ? std::optional(std::numeric_limits<double>::quiet_NaN())
           : value == "inf"  ? std::optional(infinity)
           : value == "-inf" ? std::optional(-infinity)
                             : std::nullopt;
}

} // namespace rtrain::json
