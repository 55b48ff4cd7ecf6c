// SPDX-License-Identifier: Apache-2.0
/// @file
/// Small JSON files with a checksum: an object whose last member is the CRC-32C of the preceding
/// text. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/json.hpp>

#include <boost/json/object.hpp>

#include <stdexcept>
#include <string>
#include <string_view>

namespace rtrain::checkpoint {

inline constexpr std::string_view seal_field = ",\"crc32c\":";

[[nodiscard]] inline std::string with_checksum(boost::json::object object) {
    if (object.empty()) {
        object["empty"] = true; // the comma needs a preceding member
    }
    std::string text = json::serialize(object);
    text.pop_back(); // the closing brace
    const std::uint32_t sum = crc32c(text);
    return text.append(seal_field).append(std::to_string(sum)).append("}");
}

/// Verifies and removes the checksum. Throws std::invalid_argument unless with_checksum() returned this
/// text.
[[nodiscard]] inline boost::json::object parse_checked(std::string_view text) {
    const auto end = text.rfind(seal_field);
    if (end == std::string_view::npos) {
        throw std::invalid_argument("it does not end in a checksum");
    }
    const std::string expected =
        std::string(seal_field) + std::to_string(crc32c(text.substr(0, end))) + "}";
    if (text.substr(end) != expected) {
        throw std::invalid_argument("its checksum does not match");
    }
    boost::json::object object = json::parse_object(text);
    object.erase("crc32c");
    object.erase("empty");
    return object;
}

} // namespace rtrain::checkpoint
