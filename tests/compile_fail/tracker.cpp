// SPDX-License-Identifier: Apache-2.0
// One expectation a line:
// clang-format off
// expect NOT_MOVABLE: Tracker not met: the type must be movable [RT-V1]
// expect NO_START: Tracker not met: missing member `void start(const rtrain::track::RunInfo& info)` [RT-V2]
// expect NO_REWIND: Tracker not met: missing member `rtrain::track::Position rewind(rtrain::track::Position position)` [RT-V3]
// expect NO_WRITE: Tracker not met: missing member `void write(const rtrain::track::Line& line)` [RT-V4]
// expect NO_FINISH: Tracker not met: missing member `void finish()` [RT-V5]
// clang-format on
#include <rtrain/config/tracker.hpp>

struct MyTracker {
#ifdef NOT_MOVABLE
    MyTracker(MyTracker&&) = default;
#endif
#ifndef NO_START
    void start(const rtrain::track::RunInfo&);
#endif
#ifndef NO_REWIND
    rtrain::track::Position rewind(rtrain::track::Position);
#endif
#ifndef NO_WRITE
    void write(const rtrain::track::Line&);
#endif
#ifndef NO_FINISH
    void finish();
#endif
};

rtrain::track::AnyTracker any(MyTracker&& tracker) {
    return static_cast<MyTracker&&>(tracker);
}
