// SPDX-License-Identifier: Apache-2.0
/// @file
/// All events that the driver and the ranks know, with their fields: what each of them may say to
/// the other besides who it is and what it does.
/// Cost tier 0: std only.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace rtrain::launch {

/// Who says an event.
enum class Sender : unsigned char { rank, driver };

enum class FieldType : unsigned char {
    text,
    flag,
    seconds, ///< a number that is not negative; as double when it was parsed
    texts,   ///< an array of text
    count,   ///< a whole number that is not negative
    rank,
    ranks ///< an array of ranks
};

struct EventField {
    std::string_view name;
    FieldType type = FieldType::text;
    bool optional = false; ///< whoever was built before it came does not send it
};

struct EventKind {
    std::string_view name;
    Sender sender;
    std::array<EventField, 7> fields{}; ///< those without a name are none

    [[nodiscard]] constexpr std::size_t field_count() const noexcept {
        std::size_t count = 0;
        for (const EventField& field : fields) {
            count += static_cast<std::size_t>(!field.name.empty());
        }
        return count;
    }
};

/// What a Failure holds besides code and message (base/failure_json.hpp).
inline constexpr EventField failure_kind{"how", FieldType::text, true};
inline constexpr EventField failure_rank{"rank", FieldType::rank, true};
inline constexpr EventField failure_from_outside{"from_outside", FieldType::flag, true};

/// All events there are.
inline constexpr std::array event_kinds{
    // The training function begins, from that checkpoint or, if empty, from the start.
    EventKind{"training", Sender::rank, {{{"checkpoint"}}}},
    // The training function has failed; its processes live, but for the lost ones, and wait for a
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
    // How the call has ended, of a rank that does not see the session's directory: see ending.hpp.
    EventKind{"ending", Sender::rank, {{{"text"}}}},
    // This rank is about to die of that error.
    EventKind{"last_words",
              Sender::rank,
              {{{"code"}, {"message"}, failure_kind, failure_rank, failure_from_outside}}},
    // That checkpoint was committed; it holds so many reports.
    EventKind{"saved", Sender::rank, {{{"checkpoint"}, {"iteration", FieldType::count}}}},
    // How far the run has come: see bar_event.hpp.
    EventKind{"bar",
              Sender::rank,
              {{{"epoch", FieldType::count},
                {"epochs", FieldType::count},
                {"done", FieldType::count},
                {"total", FieldType::count},
                {"elapsed_s", FieldType::seconds},
                {"rate", FieldType::seconds},
                {"metrics"}}}},
    // Lines that stay; the bar is gone until the next one.
    EventKind{"shown", Sender::rank, {{{"text"}}}},
    // The answer to "dump"; empty when the thread did not react.
    EventKind{"stack", Sender::rank, {{{"text"}}}},
    // The run has ended well, and another one may follow in these ranks;
    EventKind{"run_ended", Sender::rank},
    // here it is, in words of those who run it.
    EventKind{"run_begins", Sender::rank, {{{"run"}}}},
    // This rank has nothing more to say.
    EventKind{"done", Sender::rank},

    // The answer to a Hello, one of both.
    EventKind{"welcome", Sender::driver},
    EventKind{"refused", Sender::driver, {{{"why"}}}},
    // I am still there.
    EventKind{"ping", Sender::driver},
    // Save and end within that time.
    EventKind{"preempt", Sender::driver, {{{"grace_s", FieldType::seconds}}}},
    // Send the stack of the thread that trains.
    EventKind{"dump", Sender::driver},
    // The ranks hang, and all is said about it: end now. Between ranks without a driver.
    EventKind{"end", Sender::driver},
    // Whether the training function is called again in the same processes, after that pause, and
    // from which checkpoints not.
    EventKind{"decision",
              Sender::driver,
              {{{"restart", FieldType::flag},
                {"delay_s", FieldType::seconds},
                {"skip", FieldType::texts},
                {"reason"}}}},
};

} // namespace rtrain::launch
