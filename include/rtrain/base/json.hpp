// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reading and writing JSON so that every number comes back with the bits it had. Boost.JSON's own
/// parser rounds one double in ten to a neighbour (measured with 1.81), which no resumed run may
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

/// Parses one JSON text. Throws std::invalid_argument saying where it is malformed.
[[nodiscard]] boost::json::value parse(std::string_view text);

/// The same of an object. Throws std::invalid_argument for any other value, too.
[[nodiscard]] boost::json::object parse_object(std::string_view text);

/// `value` with what JSON has no number for replaced: NaN by null, infinities by "inf" and "-inf".
[[nodiscard]] boost::json::value finite(boost::json::value value);

/// One line of JSON. A byte that belongs to no character of UTF-8 becomes '?', because no reader
/// takes it.
[[nodiscard]] std::string serialize(const boost::json::value& value);

/// The number of a value, with what finite() has put in the place of one; none for anything else.
[[nodiscard]] std::optional<double> number(const boost::json::value& value) noexcept;

} // namespace rtrain::json

#ifndef RTRAIN_COMPILED
#include <rtrain/base/json_definitions.hpp>
#endif
