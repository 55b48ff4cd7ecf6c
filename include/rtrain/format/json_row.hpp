// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses one JSON object into the cells of a table row: numbers, strings, and lists of numbers. No
/// tree is built. Numbers are rounded as in Python. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/format/json_scanner.hpp>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/error.hpp>
#include <boost/json/parse_options.hpp>
#include <boost/json/string_view.hpp>
#include <boost/system/error_code.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace rtrain::format {

enum class JsonKind : unsigned char { null, boolean, integer, real, text, integers, reals, other };

/// Description for messages, such as "an integer".
[[nodiscard]] inline std::string_view name_of(JsonKind kind) {
    switch (kind) {
    case JsonKind::null:
        return "null";
    case JsonKind::boolean:
        return "a boolean";
    case JsonKind::integer:
        return "an integer";
    case JsonKind::real:
        return "a number that is not a 64-bit integer";
    case JsonKind::text:
        return "a string";
    case JsonKind::integers:
        return "a list of integers";
    case JsonKind::reals:
        return "a list of numbers";
    default:
        return "an object, or a list with elements other than numbers";
    }
}

/// A value of a row. An empty list counts as a list of integers; null in a list is NaN.
struct JsonCell {
    std::string key;
    JsonKind kind = JsonKind::null;
    std::int64_t integer = 0; ///< also set for a boolean
    double real = 0;          ///< also set for an integer
    bool is_exact = true;     ///< float64 represents all its integers exactly
    std::string text;         ///< also the digits of an integer beyond int64
    std::vector<std::int64_t> integers;
    std::vector<double> reals; ///< also set for integers
};

/// Handler of Boost.JSON's parser. Cells and their memory are reused from row to row.
class JsonRowHandler {
public:
    static constexpr std::size_t max_object_size = std::size_t(-1);
    static constexpr std::size_t max_array_size = std::size_t(-1);
    static constexpr std::size_t max_key_size = std::size_t(-1);
    static constexpr std::size_t max_string_size = std::size_t(-1);

    using Error = boost::system::error_code;
    using Text = boost::json::string_view;

    std::vector<JsonCell> cells; ///< the first `used` belong to this row
    std::size_t used = 0;

    void begin() {
        used = 0;
        depth_ = 0;
        text_.clear();
    }

    bool on_document_begin(Error& /*error*/) { return true; }
    bool on_document_end(Error& /*error*/) { return true; }
    bool on_object_begin(Error& /*error*/) {
        if (depth_ > 0) {
            cell().kind = JsonKind::other;
        }
        ++depth_;
        return true;
    }
    bool on_object_end(std::size_t /*size*/, Error& /*error*/) {
        --depth_;
        return true;
    }
    bool on_array_begin(Error& /*error*/) {
        require_object();
        JsonCell& list = cell();
        list.kind = depth_ == 1 ? JsonKind::integers : JsonKind::other;
        ++depth_;
        return true;
    }
    bool on_array_end(std::size_t /*size*/, Error& /*error*/) {
        --depth_;
        return true;
    }
    bool on_key_part(Text text, std::size_t /*size*/, Error& /*error*/) { return append(text); }
    bool on_key(Text text, std::size_t /*size*/, Error& /*error*/) {
        append(text);
        if (depth_ == 1) {
            if (used == cells.size()) {
                cells.emplace_back();
            }
            JsonCell& next = cells[used++];
            next.key.swap(text_);
            next.kind = JsonKind::null;
            next.is_exact = true;
            next.text.clear();
            next.integers.clear();
            next.reals.clear();
        }
        text_.clear();
        return true;
    }
    bool on_string_part(Text text, std::size_t /*size*/, Error& /*error*/) { return append(text); }
    bool on_string(Text text, std::size_t /*size*/, Error& /*error*/) {
        require_object();
        append(text);
        if (depth_ == 1) {
            cell().kind = JsonKind::text;
            cell().text.swap(text_);
        } else {
            cell().kind = JsonKind::other;
        }
        text_.clear();
        return true;
    }
    bool on_number_part(Text /*text*/, Error& /*error*/) { return true; }
    bool on_int64(std::int64_t number, Text /*text*/, Error& /*error*/) {
        const auto bits = static_cast<std::uint64_t>(number);
        take(JsonKind::integer, number, static_cast<double>(number),
             is_exact_double(number < 0 ? 0 - bits : bits));
        return true;
    }
    bool on_uint64(std::uint64_t number, Text text, Error& /*error*/) {
        take(JsonKind::real, 0, static_cast<double>(number), is_exact_double(number), text);
        return true;
    }
    bool on_double(double number, Text text, Error& /*error*/) {
        double exact = 0; // Boost.JSON's may be off by one ulp
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exact);
        const bool is_exact = error == std::errc() && end == text.data() + text.size();
        const double nearest = is_exact ? exact : number;
        const bool is_integer = text.find_first_not_of("-0123456789") == Text::npos;
        take(JsonKind::real, 0, nearest,
             !is_integer || holds_integer(nearest, {text.data(), text.size()}),
             is_integer ? text : Text());
        return true;
    }
    bool on_bool(bool is_true, Error& /*error*/) {
        take(JsonKind::boolean, is_true ? 1 : 0, is_true ? 1.0 : 0.0);
        return true;
    }
    bool on_null(Error& /*error*/) {
        require_object();
        if (depth_ > 1) {
            take(JsonKind::real, 0, std::numeric_limits<double>::quiet_NaN());
        }
        return true;
    }
    bool on_comment_part(Text /*text*/, Error& /*error*/) { return true; }
    bool on_comment(Text /*text*/, Error& /*error*/) { return true; }

private:
    [[nodiscard]] JsonCell& cell() { return cells[used - 1]; }

    void require_object() const {
        if (depth_ == 0) {
            throw std::invalid_argument("not a JSON object; expected {\"column\": value, ...}");
        }
    }

    bool append(Text text) {
        text_.append(text.data(), text.size());
        return true;
    }

    /// Stores a value, or an element of a list. `text` is set for an integer outside int64.
    void take(JsonKind kind, std::int64_t integer, double real, bool is_exact = true,
              Text text = {}) {
        require_object();
        JsonCell& at = cell();
        at.is_exact = at.is_exact && is_exact;
        if (depth_ == 1) {
            at.kind = kind;
            at.integer = integer;
            at.real = real;
            at.text.assign(text.data(), text.size());
            return;
        }
        const bool is_list = at.kind == JsonKind::integers || at.kind == JsonKind::reals;
        if (depth_ > 2 || !is_list || kind == JsonKind::boolean) {
            at.kind = JsonKind::other;
            return;
        }
        at.kind = kind == JsonKind::integer ? at.kind : JsonKind::reals;
        at.integers.push_back(integer);
        at.reals.push_back(real);
    }

    std::size_t depth_ = 0;
    std::string text_; ///< the beginning of a key or string
};

/// Parses consecutive rows.
class JsonRowParser {
public:
    /// `max_depth`: nesting limit of objects and lists; the row itself counts as one.
    explicit JsonRowParser(std::size_t max_depth = 32) : parser_(options(max_depth)) {}

    /// Returns the cells of an object, in its order, valid until the next call. A duplicate key
    /// appears twice, and the last one counts. Throws std::invalid_argument unless the text is a
    /// JSON object in UTF-8.
    [[nodiscard]] std::span<const JsonCell> parse(std::string_view text) {
        JsonRowHandler& handler = parser_.handler();
        handler.begin();
        parser_.reset();
        boost::system::error_code error;
        std::size_t read = 0;
        try {
            read = parser_.write_some(false, text.data(), text.size(), error);
        } catch (const std::invalid_argument&) {
            parser_.reset();
            throw;
        }
        if (!error && read < text.size()) {
            throw std::invalid_argument("at byte " + std::to_string(read) +
                                        ": text follows the object");
        }
        if (error) {
            throw std::invalid_argument("at byte " + std::to_string(read) + ": " +
                                        (error == boost::json::error::too_deep
                                             ? "objects or lists are nested too deeply"
                                             : error.message()));
        }
        return std::span(handler.cells).first(handler.used);
    }

private:
    [[nodiscard]] static boost::json::parse_options options(std::size_t max_depth) {
        boost::json::parse_options options;
        options.max_depth = max_depth;
        return options;
    }
    boost::json::basic_parser<JsonRowHandler> parser_;
};

} // namespace rtrain::format
