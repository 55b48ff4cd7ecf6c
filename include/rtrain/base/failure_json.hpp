// SPDX-License-Identifier: Apache-2.0
/// @file
/// A Failure as JSON: between ranks (comm/world/outcomes.hpp), over the control channel, in files.
///
/// Fields with default values are omitted, so that both sides interoperate even if one was built
/// before a field was added. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/name_table.hpp>
#include <rtrain/base/text/clean_text.hpp>

#include <boost/json/object.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace rtrain {
namespace detail {

inline constexpr auto failure_kinds =
    name_table<Failure::Kind>({{Failure::Kind::threw, "threw"},
                               {Failure::Kind::interrupted, "interrupted"},
                               {Failure::Kind::died, "died"},
                               {Failure::Kind::hang, "hang"},
                               {Failure::Kind::start_up, "start_up"},
                               {Failure::Kind::preemption, "preemption"},
                               {Failure::Kind::configuration, "configuration"}});

} // namespace detail

/// Invalid UTF-8 becomes '?'.
[[nodiscard]] inline boost::json::object to_json(const Failure& failure) {
    constexpr std::size_t any_length = std::string::npos;
    boost::json::object object{{"code", json::clean_text(failure.code.text(), any_length)},
                               {"message", json::clean_text(failure.message, any_length)}};
    if (failure.kind != detail::kind_of_thrown(failure.code)) {
        object["how"] = detail::failure_kinds[failure.kind]; // "kind" is the type of a message
    }
    if (failure.rank >= 0) {
        object["rank"] = failure.rank;
    }
    if (failure.from_outside) {
        object["from_outside"] = true;
    }
    return object;
}

/// Ignores unknown fields; an unknown kind counts as thrown. Throws what Boost.JSON throws if the
/// code or the message is missing.
[[nodiscard]] inline Failure failure_from(const boost::json::object& object) {
    Failure failure{.code = ErrorCode::parse(object.at("code").as_string()),
                    .message = std::string(object.at("message").as_string())};
    failure.kind = detail::kind_of_thrown(failure.code);
    if (const auto* const kind = object.if_contains("how")) {
        failure.kind = detail::failure_kinds.parse(kind->as_string()).value_or(failure.kind);
    }
    if (const auto* const rank = object.if_contains("rank")) {
        failure.rank = rank->to_number<int>();
    }
    if (const auto* const outside = object.if_contains("from_outside")) {
        failure.from_outside = outside->as_bool();
    }
    return failure;
}

/// Returns one line of at most `longest` bytes, at least 200; truncates the message to fit.
[[nodiscard]] inline std::string encode(Failure failure, std::size_t longest) {
    std::string line = json::serialize(to_json(failure));
    for (std::size_t limit = longest; line.size() > longest; limit /= 2) { // \u0001 is six bytes
        failure.message = json::clean_text(failure.message, limit);
        line = json::serialize(to_json(failure));
    }
    return line;
}

/// Parses the output of encode().
[[nodiscard]] inline Failure decode_failure(std::string_view line) {
    return failure_from(json::parse(line).as_object());
}

} // namespace rtrain
