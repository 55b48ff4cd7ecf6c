// SPDX-License-Identifier: Apache-2.0
// One expectation a line:
// clang-format off
// expect COPY: a scheduler must be copyable [RT-U60]
// expect RESULT: Scheduler not met: it needs begin(const Goal&), Config add(const std::string&, Config), Verdict on_result(const TrialReport&)
// expect SAVE: see rtrain/tune/schedule/scheduler.hpp [RT-U61]
// clang-format on
#include <rtrain/tune/schedule/scheduler.hpp>

using namespace rtrain::tune;

struct MyScheduler {
#ifdef COPY
    std::unique_ptr<int> state;
#endif
    void begin(const Goal&) {}
    rtrain::Config add(const std::string&, rtrain::Config config) {
        return config;
    }
#ifdef RESULT
    bool on_result(const TrialReport&) {
        return true;
    }
#else
    Verdict on_result(const TrialReport&) {
        return Stop{};
    }
#endif
    void on_end(const std::string&, TrialEnd, const std::optional<TrialReport>&) {}
    std::optional<std::string> next(std::span<const Candidate>) {
        return std::nullopt;
    }
#ifdef SAVE
    boost::json::object save() {
        return {};
    }
#else
    boost::json::object save() const {
        return {};
    }
#endif
    void load(const boost::json::object&) {}
};

AnyScheduler any{MyScheduler()};
