// SPDX-License-Identifier: Apache-2.0
/// @file
/// HTML for texts and values. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/base/text/c_locale.hpp>
#include <rtrain/base/text/clean_text.hpp>
#include <rtrain/track/lines/reported_image.hpp>
#include <rtrain/track/page/curve.hpp>

#include <boost/json/value.hpp>

#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace rtrain::track::html {

inline constexpr std::size_t longest = 1000; ///< bytes of a text, by default

/// Escapes `text` for an element or a quoted attribute, truncated to `limit` bytes.
[[nodiscard]] inline std::string escaped(std::string_view text, std::size_t limit = longest) {
    std::string result;
    for (const char c : json::clean_text(text, limit)) {
        switch (c) {
        case '&':
            result += "&amp;";
            break;
        case '<':
            result += "&lt;";
            break;
        case '>':
            result += "&gt;";
            break;
        case '"':
            result += "&quot;";
            break;
        default:
            result += c;
        }
    }
    return result + (text.size() > limit ? "&hellip;" : "");
}

/// JSON for a `script` element, which only "<" can end.
[[nodiscard]] inline std::string script_data(std::string_view json) {
    std::string result;
    result.reserve(json.size());
    for (const char c : json) {
        result += c == '<' ? std::string_view("\\u003c") : std::string_view(&c, 1);
    }
    return result;
}

[[nodiscard]] inline std::string number(double value) {
    std::string text;
    append_number(text, value);
    return std::isnan(value) ? "NaN" : std::isinf(value) ? (value > 0 ? "inf" : "-inf") : text;
}

/// A value of a report or a configuration.
[[nodiscard]] inline std::string of(const boost::json::value& value) {
    if (const auto* const array = value.if_array()) {
        std::string items;
        for (const boost::json::value& item : *array) {
            if (items.size() > longest) {
                return items + ", &hellip;";
            }
            items += (items.empty() ? "" : ", ") + of(item);
        }
        return "[" + items + "]";
    }
    return is_image(value)     ? "an image"
           : value.is_double() ? number(value.get_double())
           : value.is_string() ? escaped(std::string_view(value.get_string()))
                               : escaped(json::serialize(value));
}

/// An image of a report.
[[nodiscard]] inline std::string image(const std::string& name, const boost::json::value& value) {
    const std::string_view address = value.get_string();
    return "<img alt=\"" + escaped(name) + "\" src=\"" + escaped(address, address.size()) + "\">";
}

/// "1 h 02 min", "3 min 04 s", "5.6 s".
[[nodiscard]] inline std::string duration(double seconds) {
    const double minutes = std::floor(seconds / 60);
    if (seconds < 60) {
        return rtrain::detail::print("%.3g s", seconds);
    }
    if (minutes < 60) {
        return rtrain::detail::print("%.0f min %02.0f s", minutes,
                                     std::floor(seconds - 60 * minutes));
    }
    const double hours = std::floor(minutes / 60);
    return rtrain::detail::print("%.0f h %02.0f min", hours, minutes - 60 * hours);
}

[[nodiscard]] inline std::string cell(const std::string& content, const char* of_class = "") {
    return std::string("<td") + (*of_class != '\0' ? " class=\"" : "") + of_class +
           (*of_class != '\0' ? "\"" : "") + ">" + content + "</td>";
}
[[nodiscard]] inline std::string number_cell(const std::string& content) {
    return cell(content, "number");
}
[[nodiscard]] inline std::string row(const std::string& name, const std::string& cells) {
    return "<tr><th scope=\"row\">" + name + "</th>" + cells + "</tr>\n";
}

/// Replaces each {{name}} of a page. Values are inserted as they are.
[[nodiscard]] inline std::string filled(std::string_view page,
                                        const std::map<std::string_view, std::string>& values) {
    std::string text;
    for (std::size_t at = page.find("{{"); at != std::string_view::npos; at = page.find("{{")) {
        const std::size_t end = page.find("}}", at);
        text += page.substr(0, at);
        text += values.at(page.substr(at + 2, end - at - 2));
        page.remove_prefix(end + 2);
    }
    return text.append(page);
}

} // namespace rtrain::track::html
