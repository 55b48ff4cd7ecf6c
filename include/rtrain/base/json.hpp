// SPDX-License-Identifier: Apache-2.0
/// Parses and serializes JSON so that every number keeps its bits. Boost.JSON's own parser rounds
/// one double in ten to a neighbor (measured with 1.81), which would break bit-identical resuming.
/// Cost tier 1: Boost.JSON.
/// see. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/compiled.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace rtrain::json {

/// Parses one JSON text. Throws std::invalid_argument with the position if it is malformed.
[[nodiscard]] boost::json::value parse(std::string_view text);

/// Parses an object. Also throws std::invalid_argument for any other value.
[[nodiscard]] boost::json::object parse_object(std::string_view text);

/// Replaces the numbers in `value` that JSON cannot represent: NaN by null, infinities by "inf" and
/// "-inf".
[[nodiscard]] boost::json::value finite(boost::json::value value);

/// Returns one line of JSON. Each invalid UTF-8 byte becomes '?', because readers reject it.
[[nodiscard]] std::string serialize(const boost::json::value& value);

/// Returns a value as a number, including finite()'s replacements; nullopt for anything else.
[[nodiscard]] std::optional<double> number(const boost::json::value& value) noexcept;

} // namespace rtrain::json

#ifndef RTRAIN_COMPILED
#include <rtrain/base/json_definitions.hpp>
#endif
