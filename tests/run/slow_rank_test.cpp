// SPDX-License-Identifier: Apache-2.0
// Where the time of a step goes, and who slows the others down.
#include <rtrain/process/status/step_clock.hpp>
#include <rtrain/run/slow_rank.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

using namespace rtrain;

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

StepTimes times(double data, double backward, double communication) {
    StepTimes result;
    result.seconds = {data, 0, backward, communication, 0, 0};
    result.steps = 10;
    result.rows = 320;
    return result;
}

} // namespace

TEST_CASE("StepClock.each_moment_belongs_to_one_part") {
    StepClock clock;
    const auto begin = steady_clock::now();
    (void)clock.take();
    (void)clock.enter(StepPart::data);
    std::this_thread::sleep_for(milliseconds(30));
    (void)clock.enter(StepPart::forward);
    std::this_thread::sleep_for(milliseconds(20));
    CHECK(clock.enter(StepPart::backward) == StepPart::forward);
    std::this_thread::sleep_for(milliseconds(10));
    clock.add_step();
    clock.add_rows(32);
    const StepTimes first = clock.take();
    const std::chrono::duration<double> passed = steady_clock::now() - begin;
    CHECK(first.of(StepPart::data) >= 0.030);
    CHECK(first.of(StepPart::forward) >= 0.020);
    CHECK(first.of(StepPart::backward) >= 0.010);
    CHECK(first.total() <= passed.count());
    CHECK(first.steps == 1);
    CHECK(first.rows == 32);

    std::this_thread::sleep_for(milliseconds(10)); // in the part that it was in
    const StepTimes second = clock.take();
    CHECK(second.of(StepPart::backward) >= 0.010);
    CHECK(second.of(StepPart::data) == 0);
    CHECK(second.steps == 0);
}

TEST_CASE("StepClock.what_goes_to_result_json") {
    const auto time = detail::time_of({times(1, 2, 3), times(3, 2, 1)});
    CHECK(time.at("data").as_double() == 2);
    CHECK(time.at("backward").as_double() == 2);
    CHECK(time.at("communication").as_double() == 2);
    CHECK(time.at("checkpoint").as_double() == 0);
    CHECK(time.at("steps").as_int64() == 10);
    CHECK(time.at("rows").as_int64() == 640);
}

TEST_CASE("SlowRank.is_named_once_with_what_takes_it_longer") {
    detail::SlowRank slow;
    CHECK_FALSE(slow.look({times(0, 3, 3), times(5, 1, 0)})); // too short to say
    const auto text = slow.look({times(0, 3, 3), times(5, 1, 0), times(0, 3, 3)});
    CHECK_FALSE(text); // other ranks than before: nothing adds up
    REQUIRE_FALSE(slow.look({times(0, 3, 3), times(5, 1, 0)}));
    const auto found = slow.look({times(0, 3, 3), times(5, 1, 0)});
    REQUIRE(found);
    CHECK(*found == "rank 1 slows the others down: of the last 12 s, its data took 10 s, against "
                    "0 s on the others, which waited for it");
    CHECK_FALSE(slow.look({times(0, 6, 6), times(10, 2, 0)}));
}

TEST_CASE("SlowRank.is_none_where_no_rank_waits_for_one") {
    detail::SlowRank slow;
    CHECK_FALSE(slow.look({times(0, 20, 0), times(0, 19, 1)}));                   // little
    CHECK_FALSE(slow.look({times(0, 10, 10), times(0, 10, 10)}));                 // the network
    CHECK_FALSE(slow.look({times(0, 10, 10), times(0, 20, 0), times(0, 20, 0)})); // two
    CHECK_FALSE(slow.look({times(20, 0, 0)}));                                    // alone
}
