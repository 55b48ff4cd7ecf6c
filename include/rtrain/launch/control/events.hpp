// SPDX-License-Identifier: Apache-2.0
/// @file
/// All events between driver and ranks, except the Hello and the status. Their wire format is in
/// event_text.hpp. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/failure.hpp>
#include <rtrain/console/bar.hpp>
#include <rtrain/launch/control/decision.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace rtrain::launch {
namespace event {

// From a rank.

/// The training function begins.
struct Training {
    std::string checkpoint{}; ///< empty: from the start
    bool operator==(const Training&) const = default;
};
/// The training function has failed; its processes, except the lost ones, live and wait for a
/// Decision.
struct Failed {
    Failure failure{};
    std::string checkpoint{};
    std::vector<int> lost{}; ///< ranks
    bool operator==(const Failed&) const = default;
};
/// Outcome of the call, from a rank that cannot access the session's directory.
struct Ending {
    std::string text{}; ///< JSON of a FitOutcome
    bool operator==(const Ending&) const = default;
};
/// This rank is about to die from that error.
struct LastWords {
    Failure failure{};
    bool operator==(const LastWords&) const = default;
};
/// A checkpoint with `iteration` reports was committed.
struct Saved {
    std::string checkpoint{};
    std::int64_t iteration = 0;
    bool operator==(const Saved&) const = default;
};
/// Lines to print; the bar is hidden until the next event.
struct Shown {
    std::string text{};
    bool operator==(const Shown&) const = default;
};
/// The answer to Dump.
struct Stack {
    std::string text{}; ///< empty if the thread did not react
    bool operator==(const Stack&) const = default;
};
/// The run has succeeded, and another may follow in these ranks.
struct RunEnded {
    bool operator==(const RunEnded&) const = default;
};
/// The next run starts.
struct RunBegins {
    std::string run{}; ///< describes it
    bool operator==(const RunBegins&) const = default;
};
/// Where this rank will listen for the other ranks of a program. When all have sent one, each gets
/// Addresses.
struct Address {
    std::string host{}; ///< numeric
    int port = 0;
    bool operator==(const Address&) const = default;
};
/// The answer to a Call; from rank 0.
struct Answer {
    std::string text{}; ///< JSON of a CallReply
    bool operator==(const Answer&) const = default;
};
/// This rank sends no more events.
struct Done {
    bool operator==(const Done&) const = default;
};

// Calls that all ranks of a program make together (program/report/rank_calls.hpp).

/// A rank calls report(). Each gets Store, if there are files, and then Reported; in the
/// background, without waiting for Stored.
struct Report {
    std::int64_t call = 0;         ///< counts the rank's calls, from 0
    boost::json::object metrics{}; ///< rank 0's count
    bool has_files = false;        ///< with a checkpoint
    bool in_background = false;    ///< CheckpointUploadMode::async
    std::vector<std::string> files{};
    std::string checkpoint{};       ///< its wished name; rank 0's counts; empty: a number
    boost::json::object metadata{}; ///< of the checkpoint
    std::string code{};             ///< of an error on this rank; empty: none
    std::string error{};
    bool operator==(const Report&) const = default;
};
/// This rank has stored its files of a checkpoint, or failed to.
struct Stored {
    std::int64_t call = 0;
    boost::json::object shared{}; ///< a digest for each name in Store::shared
    std::string code{};           ///< of an error; empty: none
    std::string error{};
    bool operator==(const Stored&) const = default;
};
/// A rank meets the others. Each gets Met.
struct Meet {
    std::int64_t call = 0;
    std::string function{}; ///< which the ranks call
    std::string text{};
    bool operator==(const Meet&) const = default;
};
/// Rank 0 logs metrics of a step. It has no answer.
struct Log {
    boost::json::object metrics{}; ///< numbers
    bool operator==(const Log&) const = default;
};

// From the driver.

/// Accepts a Hello.
struct Welcome {
    bool operator==(const Welcome&) const = default;
};
/// Rejects a Hello.
struct Refused {
    std::string why{};
    bool operator==(const Refused&) const = default;
};
/// Keep-alive.
struct Ping {
    bool operator==(const Ping&) const = default;
};
/// The rank must save and end within that time.
struct Preempt {
    double grace_s = 0;
    bool operator==(const Preempt&) const = default;
};
/// The rank must send the stack of its training thread.
struct Dump {
    bool operator==(const Dump&) const = default;
};
/// Where the ranks listen, by rank.
struct Addresses {
    std::vector<std::string> hosts{};
    std::vector<int> ports{};
    bool operator==(const Addresses&) const = default;
};
/// The ranks must do this; see launch/calls/call.hpp.
struct Call {
    std::int64_t number = 0;
    std::string name{};
    std::string arguments{}; ///< JSON
    bool operator==(const Call&) const = default;
};
/// The ranks hang, and all is reported: exit now. Between ranks without a driver.
struct End {
    bool operator==(const End&) const = default;
};
/// The rank must copy its files into the staging directory of a checkpoint.
struct Store {
    std::int64_t call = 0;
    std::string run{};                 ///< path of the run's directory
    std::string attempt{};             ///< see checkpoint::Staging
    std::string checkpoint{};          ///< its name
    std::vector<std::string> files{};  ///< to copy: no lower rank has a file of that name
    std::vector<std::string> shared{}; ///< names that several ranks have
    bool operator==(const Store&) const = default;
};
/// The answer to Report: it is durable, except for files that are stored in the background.
struct Reported {
    std::int64_t call = 0;
    std::int64_t iteration = 0; ///< number of the report
    std::string checkpoint{};   ///< path of the newest checkpoint; empty: none
    std::string stop{};         ///< why the run stops here; empty: it continues
    bool operator==(const Reported&) const = default;
};
/// The answer to Meet.
struct Met {
    std::int64_t call = 0;
    std::string text{}; ///< the first one that is not empty, by rank
    bool operator==(const Met&) const = default;
};
/// The answer to a call that has failed on all ranks.
struct CallFailed {
    std::int64_t call = 0;
    std::string code{};
    std::string error{};
    bool operator==(const CallFailed&) const = default;
};

} // namespace event

using RankEvent =
    std::variant<event::Training, event::Failed, event::Ending, event::LastWords, event::Saved,
                 console::Progress, event::Shown, event::Stack, event::RunEnded, event::RunBegins,
                 event::Address, event::Done, event::Answer, event::Report, event::Stored,
                 event::Meet, event::Log>;

using DriverEvent = std::variant<event::Welcome, event::Refused, event::Ping, event::Preempt,
                                 event::Dump, event::Addresses, event::End, Decision, event::Call,
                                 event::Store, event::Reported, event::Met, event::CallFailed>;

/// The answer to a call that all ranks of a program make.
using CallAnswer = std::variant<event::Store, event::Reported, event::Met, event::CallFailed>;

} // namespace rtrain::launch
