// SPDX-License-Identifier: Apache-2.0
/// @file
/// All events between driver and ranks, with their fields, except the Hello and the reports.
/// Cost tier 0: std only.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace rtrain::launch {

/// The side that sends an event.
enum class Sender : unsigned char { rank, driver };

enum class FieldType : unsigned char {
    text,
    flag,
    seconds, ///< a non-negative number; double after parsing
    texts,   ///< an array of text
    count,   ///< a non-negative integer
    rank,
    ranks ///< an array of ranks
};

struct EventField {
    std::string_view name;
    FieldType type = FieldType::text;
    bool optional = false; ///< not sent by older builds
};

struct EventKind {
    std::string_view name;
    Sender sender;
    std::array<EventField, 7> fields{}; ///< unused ones have no name

    [[nodiscard]] constexpr std::size_t field_count() const noexcept {
        std::size_t count = 0;
        for (const EventField& field : fields) {
            count += static_cast<std::size_t>(!field.name.empty());
        }
        return count;
    }
};

/// Fields of a Failure except code and message (base/failure_json.hpp).
inline constexpr EventField failure_kind{"how", FieldType::text, true};
inline constexpr EventField failure_rank{"rank", FieldType::rank, true};
inline constexpr EventField failure_from_outside{"from_outside", FieldType::flag, true};

/// All events.
inline constexpr std::array event_kinds{
    // The training function begins, from that checkpoint or, if empty, from the start.
    EventKind{"training", Sender::rank, {{{"checkpoint"}}}},
    // The training function has failed; its processes, except the lost ones, live and wait for a
    // decision.
    EventKind{"failed",
              Sender::rank,
              {{{"code"},
                {"message"},
                {"checkpoint"},
                {"lost", FieldType::ranks},
                failure_kind,
                failure_rank,
                failure_from_outside}}},
    // Outcome of the call, from a rank that cannot access the session's directory: see ending.hpp.
    EventKind{"ending", Sender::rank, {{{"text"}}}},
    // This rank is about to die from that error.
    EventKind{"last_words",
              Sender::rank,
              {{{"code"}, {"message"}, failure_kind, failure_rank, failure_from_outside}}},
    // That checkpoint with `iteration` reports was committed.
    EventKind{"saved", Sender::rank, {{{"checkpoint"}, {"iteration", FieldType::count}}}},
    // Progress of the run: see bar_event.hpp.
    EventKind{"bar",
              Sender::rank,
              {{{"epoch", FieldType::count},
                {"epochs", FieldType::count},
                {"done", FieldType::count},
                {"total", FieldType::count},
                {"elapsed_s", FieldType::seconds},
                {"rate", FieldType::seconds},
                {"metrics"}}}},
    // Lines to print; the bar is hidden until the next event.
    EventKind{"shown", Sender::rank, {{{"text"}}}},
    // The answer to "dump"; empty if the thread did not react.
    EventKind{"stack", Sender::rank, {{{"text"}}}},
    // The run has succeeded, and another may follow in these ranks;
    EventKind{"run_ended", Sender::rank},
    // this event describes it.
    EventKind{"run_begins", Sender::rank, {{{"run"}}}},
    // This rank sends no more events.
    EventKind{"done", Sender::rank},

    // The answer to a Hello: one of these two.
    EventKind{"welcome", Sender::driver},
    EventKind{"refused", Sender::driver, {{{"why"}}}},
    // Keep-alive.
    EventKind{"ping", Sender::driver},
    // Save and end within `grace_s` seconds.
    EventKind{"preempt", Sender::driver, {{{"grace_s", FieldType::seconds}}}},
    // Send the stack of the training thread.
    EventKind{"dump", Sender::driver},
    // The ranks hang, and all is reported: exit now. Between ranks without a driver.
    EventKind{"end", Sender::driver},
    // Whether the training function is called again in the same processes, after which pause, and
    // which checkpoints to skip.
    EventKind{"decision",
              Sender::driver,
              {{{"restart", FieldType::flag},
                {"delay_s", FieldType::seconds},
                {"skip", FieldType::texts},
                {"reason"}}}},
};

} // namespace rtrain::launch
