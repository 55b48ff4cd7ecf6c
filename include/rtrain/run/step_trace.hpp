// SPDX-License-Identifier: Apache-2.0
/// @file
/// StepTrace: what a rank does in selected steps, operator by operator, as Chrome trace events,
/// which Perfetto displays.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/os/machine.hpp>
#include <rtrain/process/status/step_clock.hpp>
#include <rtrain/run/run_directory.hpp>

#include <ATen/Functions.h>
#include <ATen/record_function.h>

#include <boost/json/value.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Records from the first step of a range to the end of the last. Used by the training thread; at
/// most one per context.
class StepTrace final : private StepClock::Observer {
public:
    /// Further events are dropped and counted.
    static constexpr std::size_t most_events = 1'000'000;

    /// Counts steps from construction. Records nothing for an empty range.
    StepTrace(StepClock& clock, ProfileConfig::Steps steps)
        : clock_(clock), steps_(steps), begun_at_(clock.steps()) {
        if (steps.first < steps.last) {
            clock_.observe(this);
        }
    }
    StepTrace(const StepTrace&) = delete;
    StepTrace& operator=(const StepTrace&) = delete;
    ~StepTrace() {
        if (steps_.first < steps_.last) {
            clock_.observe(nullptr);
            stop();
        }
    }

    /// True if the last step has ended and the recording has not been taken.
    [[nodiscard]] bool is_ready() const noexcept { return state_ == State::recorded; }

    /// Returns the trace of all ranks on rank 0, one process each; "" on others. Synchronizes
    /// clocks at a barrier. *Collective*; call when all ranks are ready.
    [[nodiscard]] std::string take(HookRanks& ranks) {
        state_ = State::taken;
        (void)ranks.all_gather(at::zeros({1}, at::kByte));
        const std::int64_t here = StepClock::now_ns();
        const at::Tensor begun = ranks.all_gather(at::full({1}, first_ns() - here, at::kLong));
        const std::int64_t first = here + begun.min().item<std::int64_t>();
        const std::vector<std::string> all = all_gather(ranks, text(ranks.rank(), first));
        events_ = {};
        if (ranks.rank() != 0) {
            return "";
        }
        std::string trace = R"({"displayTimeUnit":"ms","traceEvents":[)";
        for (const std::string& part : all) {
            trace += (&part == all.data() ? "\n" : ",\n") + part;
        }
        return trace + "\n]}\n";
    }

private:
    enum class State { waiting, recording, recorded, taken };
    struct Event {
        std::string name;
        std::int64_t begin = 0; ///< nanoseconds
        std::int64_t end = 0;
        std::uint64_t thread = 0; ///< torch's number, from 1; 0: parts of steps
    };
    struct Began final : at::ObserverContext {
        std::int64_t ns = StepClock::now_ns();
    };

    void entered(StepPart part, std::int64_t now_ns, std::int64_t steps) noexcept override {
        steps -= begun_at_;
        if (state_ == State::waiting && steps >= steps_.first && begins_step(part)) {
            start();
        }
        if (state_ != State::recording) {
            return;
        }
        if (since_ != 0) {
            add({std::string(step_part_names[static_cast<std::size_t>(part_)]), since_, now_ns, 0});
        }
        part_ = part;
        since_ = now_ns;
        if (steps >= steps_.last && begins_step(part)) {
            stop();
        }
    }

    /// The optimizer and everything else after backward belong to the same step.
    [[nodiscard]] static bool begins_step(StepPart part) noexcept {
        return part == StepPart::data || part == StepPart::forward || part == StepPart::checkpoint;
    }

    void start() noexcept {
        state_ = State::recording;
        callback_ = at::addThreadLocalCallback( // autograd's threads inherit it
            at::RecordFunctionCallback(
                [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
                    return std::make_unique<Began>();
                },
                [](const at::RecordFunction& function, at::ObserverContext* began) {
                    auto* const trace =
                        static_cast<StepTrace*>(ProcessContext::current().clock.observer());
                    if (trace != nullptr && began != nullptr) {
                        trace->add({function.name(), static_cast<Began*>(began)->ns,
                                    StepClock::now_ns(), at::RecordFunction::currentThreadId()});
                    }
                }));
    }
    void stop() noexcept {
        if (state_ == State::recording) {
            at::removeCallback(callback_);
            state_ = State::recorded;
        }
    }

    void add(Event event) noexcept {
        const std::scoped_lock lock(mutex_); // autograd may have threads
        if (events_.size() < most_events) {
            events_.push_back(std::move(event));
        } else {
            ++left_out_;
        }
    }

    [[nodiscard]] std::int64_t first_ns() const {
        std::int64_t first = StepClock::now_ns();
        for (const Event& event : events_) {
            first = std::min(first, event.begin);
        }
        return first;
    }

    /// One event per line; timestamps in microseconds since `begin`.
    [[nodiscard]] std::string text(int rank, std::int64_t begin) const {
        const auto microseconds = [](std::int64_t ns) { return 1e-3 * static_cast<double>(ns); };
        const auto named = [&](std::string_view what, std::uint64_t thread,
                               const std::string& name) {
            return json::serialize({{"name", what},
                                    {"ph", "M"},
                                    {"pid", rank},
                                    {"tid", thread},
                                    {"args", {{"name", name}}}});
        };
        std::string text = named("process_name", 0,
                                 concat("rank ", rank, " on ", storage::host_name(),
                                        left_out_ > 0 ? concat(", ", left_out_, " events left out")
                                                      : std::string())) +
                           ",\n" + named("thread_name", 0, "step");
        for (const Event& event : events_) {
            text += ",\n" + json::serialize({{"name", event.name},
                                             {"ph", "X"},
                                             {"ts", microseconds(event.begin - begin)},
                                             {"dur", microseconds(event.end - event.begin)},
                                             {"pid", rank},
                                             {"tid", event.thread}});
        }
        return text;
    }

    StepClock& clock_; ///< of which it is the only kind of observer
    ProfileConfig::Steps steps_;
    std::int64_t begun_at_;
    State state_ = State::waiting;
    StepPart part_ = StepPart::optimizer;
    std::int64_t since_ = 0;
    at::CallbackHandle callback_ = 0;
    std::mutex mutex_;
    std::vector<Event> events_;
    std::int64_t left_out_ = 0;
};

/// Writes the trace of all ranks to the run's directory. *Collective.*
inline void write_trace(StepTrace& trace, HookRanks& ranks, const RunDirectory& directory) {
    const std::string text = trace.take(ranks);
    succeed_together(ranks, [&] {
        if (ranks.rank() == 0) {
            directory.write(track::trace_file, text);
        }
    });
}

} // namespace rtrain::detail
