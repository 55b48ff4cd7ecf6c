// SPDX-License-Identifier: Apache-2.0
/// @file
/// All events between driver and ranks, except the Hello and the reports. Their wire format is in
/// event_text.hpp. Cost tier 0: std only.
#pragma once

#include <rtrain/base/failure.hpp>
#include <rtrain/console/bar.hpp>
#include <rtrain/launch/control/decision.hpp>

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

} // namespace event

using RankEvent =
    std::variant<event::Training, event::Failed, event::Ending, event::LastWords, event::Saved,
                 console::Progress, event::Shown, event::Stack, event::RunEnded, event::RunBegins,
                 event::Address, event::Answer, event::Done>;

using DriverEvent = std::variant<event::Welcome, event::Refused, event::Ping, event::Preempt,
                                 event::Dump, event::Addresses, event::Call, event::End, Decision>;

} // namespace rtrain::launch
