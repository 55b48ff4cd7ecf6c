// SPDX-License-Identifier: Apache-2.0
/// @file
/// SearchOp: the kinds of events in a search's EventLog. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/name_table.hpp>

#include <boost/json/object.hpp>

#include <stdexcept>
#include <string>

namespace rtrain::tune::internal {

enum class SearchOp : unsigned char {
    add,       ///< the searcher has suggested a trial
    exhausted, ///< it will suggest no more
    begin,     ///< a trial starts or continues
    report,    ///< a running trial has reported
    returned,  ///< a running trial has returned
    failed,    ///< a running trial has failed
    saved,     ///< the run of a trial has saved a state
    given_up,  ///< a paused trial ends with the search
    at,        ///< the time at which a process begins to search
    restored   ///< a new process resumes the search
};

inline constexpr auto search_op_names =
    rtrain::detail::name_table<SearchOp>({{SearchOp::add, "add"},
                                          {SearchOp::exhausted, "exhausted"},
                                          {SearchOp::begin, "begin"},
                                          {SearchOp::report, "report"},
                                          {SearchOp::returned, "returned"},
                                          {SearchOp::failed, "failed"},
                                          {SearchOp::saved, "saved"},
                                          {SearchOp::given_up, "given_up"},
                                          {SearchOp::at, "at"},
                                          {SearchOp::restored, "restored"}});

/// Throws std::exception for an unknown event.
[[nodiscard]] inline SearchOp op_of(const boost::json::object& event) {
    const std::string name(event.at("op").as_string());
    const auto op = search_op_names.parse(name);
    if (!op) {
        throw std::invalid_argument("unknown event " + name);
    }
    return *op;
}

} // namespace rtrain::tune::internal
