// SPDX-License-Identifier: Apache-2.0
// What a bar says of a loop that is looked at now and then.
#include <rtrain/console/meter.hpp>
#include <rtrain/process/status/loop_status.hpp>

#include <doctest/doctest.h>

using namespace rtrain;
using rtrain::console::Meter;
using rtrain::console::Progress;

TEST_CASE("Meter.follows_a_loop_over_batches") {
    LoopStatus status;
    Meter meter;
    meter.begin(100, 0);
    status.begin_epoch(0, 2);
    status.begin_loop({.first = 0, .total = 40, .rows = 8, .rows_of_all = 16});
    CHECK(meter.look(status.read(), 0, 101) == Progress{.epoch = 1, .epochs = 2, .total = 40});
    for (int i = 0; i < 10; ++i) {
        status.advance();
    }
    CHECK(meter.look(status.read(), 0, 103) ==
          Progress{.epoch = 1, .epochs = 2, .done = 10, .total = 40, .elapsed_s = 2, .rate = 5});
    // No batch came: the rate stays what it was.
    CHECK(meter.look(status.read(), 0, 104).rate == 5);
    CHECK(meter.look(status.read(), 0, 104).elapsed_s == 3);
}

TEST_CASE("Meter.comes_to_the_rate_of_the_last_seconds") {
    LoopStatus status;
    Meter meter;
    meter.begin(0, 0);
    status.begin_loop({.total = 100'000});
    (void)meter.look(status.read(), 0, 0);
    double now_s = 0;
    for (const int per_second : {100, 10}) {
        for (int second = 0; second < 30; ++second) {
            for (int i = 0; i < per_second; ++i) {
                status.advance();
            }
            (void)meter.look(status.read(), 0, ++now_s);
        }
        CHECK(meter.look(status.read(), 0, now_s).rate ==
              doctest::Approx(per_second).epsilon(0.01));
    }
}

TEST_CASE("Meter.time_stands_still_between_two_loops") {
    LoopStatus status;
    Meter meter;
    meter.begin(0, 0);
    status.begin_loop({.total = 2});
    (void)meter.look(status.read(), 0, 1);
    status.advance();
    status.advance();
    status.end_loop();
    const Progress end = meter.look(status.read(), 0, 3);
    CHECK(end.done == 2);
    CHECK(end.elapsed_s == 2);
    CHECK(meter.look(status.read(), 0, 10) == end);
    status.begin_loop({.total = 2});
    CHECK(meter.look(status.read(), 0, 11) == Progress{.total = 2});
}

TEST_CASE("Meter.a_loop_that_goes_on_counts_what_was_done_before_but_not_its_time") {
    LoopStatus status;
    Meter meter;
    meter.begin(0, 0);
    status.begin_loop({.first = 30, .total = 40});
    (void)meter.look(status.read(), 0, 0);
    status.advance();
    status.advance();
    CHECK(meter.look(status.read(), 0, 1) ==
          Progress{.done = 32, .total = 40, .elapsed_s = 1, .rate = 2});
}

TEST_CASE("Meter.without_loops_steps_are_counted") {
    LoopStatus status;
    Meter meter;
    meter.begin(10, 1000);
    CHECK(meter.look(status.read(), 1000, 10) == Progress{});
    CHECK(meter.look(status.read(), 1004, 12) == Progress{.done = 4, .elapsed_s = 2, .rate = 2});
}
