// SPDX-License-Identifier: Apache-2.0
// One expectation a line:
// clang-format off
// expect START: this callback's `on_start` is not `void on_start(const rtrain::track::RunInfo& run)` [RT-V21]
// expect REPORT: this callback's `after_report` is not `void after_report(const rtrain::track::RunInfo& run, const rtrain::track::Metrics& metrics, const std::optional<rtrain::Checkpoint>& checkpoint)` [RT-V22]
// expect CHECKPOINT: this callback's `after_checkpoint` is not `void after_checkpoint(const rtrain::track::RunInfo& run, const rtrain::Checkpoint& checkpoint)` [RT-V23]
// expect EXCEPTION: this callback's `after_exception` is not `void after_exception(const rtrain::track::RunInfo& run, const rtrain::track::Failures& failures)` [RT-V24]
// expect END: this callback's `on_end` is not `void on_end(const rtrain::Result& result)` [RT-V25]
// expect BACKGROUND: this callback's `in_background` is not `static constexpr bool in_background` [RT-V26]
// expect NOTHING: Callback not met: it has none of the members on_start, after_report, after_checkpoint, after_exception, on_end [RT-V20]
// clang-format on
#include <rtrain/config/callback.hpp>

using rtrain::track::RunInfo;

struct MyCallback {
#ifndef NOTHING
#ifdef START
    void on_start();
#else
    void on_start(const RunInfo&);
#endif
#ifdef REPORT
    void after_report(const RunInfo&, const rtrain::Config&);
#else
    void after_report(const RunInfo&, const rtrain::track::Metrics&,
                      const std::optional<rtrain::Checkpoint>&);
#endif
#ifdef CHECKPOINT
    void after_checkpoint(const rtrain::Checkpoint&);
#else
    void after_checkpoint(const RunInfo&, const rtrain::Checkpoint&);
#endif
#ifdef EXCEPTION
    void after_exception(const RunInfo&, const std::string&);
#else
    void after_exception(const RunInfo&, const rtrain::track::Failures&);
#endif
#ifdef END
    void on_end(RunInfo&);
#else
    void on_end(const rtrain::Result&);
#endif
#endif
#ifdef BACKGROUND
    bool in_background = true;
#else
    static constexpr bool in_background = true;
#endif
};

rtrain::track::AnyCallback any(MyCallback&& callback) {
    return static_cast<MyCallback&&>(callback);
}
