// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"

#include <rtrain/launch/supervise/failure_policy.hpp>

#include <doctest/doctest.h>

using namespace rtrain;
using namespace rtrain::launch;
using Kind = Failure::Kind;
using test::contains;

TEST_CASE("FailurePolicy.by_default_nothing_is_restarted_but_starts") {
    FailurePolicy policy({});
    const auto died = policy.on_failure({.message = "died"});
    CHECK(!died.restart);
    CHECK(died.reason == "max_failures = 0");
    CHECK(died.delay_s == 0);
    for (int start = 1; start <= 3; ++start) {
        const auto again = policy.on_failure({.kind = Kind::start_up});
        CHECK(again.restart);
        CHECK(again.reason == "restart " + std::to_string(start) + " of 3");
    }
    const auto last = policy.on_failure({.kind = Kind::start_up});
    CHECK(!last.restart);
    CHECK(last.reason == "controller_failure_limit = 3 is used up");
}

TEST_CASE("FailurePolicy.each_kind_has_its_budget") {
    FailurePolicy policy(
        {.max_failures = 2, .controller_failure_limit = 1, .max_preemption_failures = 1});
    CHECK(policy.on_failure({.kind = Kind::threw, .message = "a"}).reason == "restart 1 of 2");
    CHECK(policy.on_failure({.kind = Kind::preemption}).reason == "restart 1 of 1");
    CHECK(policy.on_failure({.kind = Kind::start_up}).reason == "restart 1 of 1");
    CHECK(policy.on_failure({.kind = Kind::hang, .message = "b"}).reason == "restart 2 of 2");
    CHECK(policy.on_failure({.kind = Kind::start_up}).restart); // this start has failed once only
    CHECK(policy.on_failure({.kind = Kind::preemption}).reason ==
          "max_preemption_failures = 1 is used up");
    policy.on_progress("checkpoint_000001", 1);
    CHECK(policy.on_failure({.kind = Kind::threw, .message = "c"}).reason ==
          "max_failures = 2 is used up");
}

TEST_CASE("FailurePolicy.configuration_errors_are_final") {
    FailurePolicy policy({.max_failures = -1, .controller_failure_limit = -1});
    CHECK(!policy.on_failure({.kind = Kind::configuration, .code = "RT-C2"}).restart);
}

TEST_CASE("FailurePolicy.what_each_start_meets_is_final") {
    for (const Kind kind : {Kind::threw, Kind::died, Kind::start_up}) {
        for (const auto code :
             {ErrorCode("RT-L45"), ErrorCode("RT-L46"), ErrorCode("RT-L87"), ErrorCode("RT-S45")}) {
            FailurePolicy policy({.max_failures = -1, .controller_failure_limit = -1});
            const auto decision = policy.on_failure({.kind = kind, .code = code});
            CHECK(!decision.restart);
            CHECK(decision.reason == "a restart cannot help");
        }
    }
}

TEST_CASE("FailurePolicy.delays_double_without_progress") {
    FailurePolicy policy({.max_failures = -1, .backoff_s = 0.5, .backoff_max_s = 3});
    const auto next = [&](Kind kind) {
        return policy.on_failure({.kind = kind, .from_outside = true}).delay_s;
    };
    CHECK(next(Kind::threw) == 0);
    CHECK(next(Kind::hang) == 0.5);
    CHECK(next(Kind::start_up) == 1);
    CHECK(next(Kind::preemption) == 2);
    CHECK(next(Kind::threw) == 3);
    for (int i = 0; i < 5000; ++i) {
        CHECK(next(Kind::threw) == 3);
    }
    policy.on_progress("checkpoint_000000", 7);
    CHECK(next(Kind::threw) == 0);
    CHECK(next(Kind::threw) == 0.5);
    policy.on_progress("checkpoint_000001", 7); // the same iterations again
    CHECK(next(Kind::threw) == 1);
}

TEST_CASE("FailurePolicy.a_checkpoint_that_fails_twice_alike_is_skipped") {
    FailurePolicy policy({.max_failures = -1});
    policy.on_progress("checkpoint_000001", 10);
    policy.on_progress("checkpoint_000002", 20);
    const auto fail = [&](const char* checkpoint, const char* message) {
        return policy.on_failure({.code = "RT-T2", .message = message}, checkpoint);
    };
    CHECK(fail("checkpoint_000002", "rank 1: loss is nan at step 23").skip.empty());
    CHECK(fail("checkpoint_000002", "something else").skip.empty());
    const auto second = fail("checkpoint_000002", "rank 0: loss is nan at step 24");
    CHECK(second.restart);
    CHECK(second.skip == std::vector<std::string>{"checkpoint_000002"});
    CHECK(contains(second.reason, "restart 3, skipping checkpoint_000002"));
    // It stays so. The one before it has its own two tries, and what it repeats is no progress.
    policy.on_progress("checkpoint_000003", 20);
    CHECK(fail("checkpoint_000003", "rank 1: loss is nan at step 23").skip == second.skip);
    CHECK(fail("checkpoint_000003", "rank 1: loss is nan at step 23").skip ==
          std::vector<std::string>{"checkpoint_000002", "checkpoint_000003"});
    policy.on_progress("checkpoint_000004", 30);
    CHECK(fail("checkpoint_000004", "rank 1: loss is nan at step 33").skip.size() == 2);
}

TEST_CASE("FailurePolicy.without_word_of_a_checkpoint_the_newest_known_is_meant") {
    FailurePolicy policy({.max_failures = -1});
    CHECK(policy.on_failure({.message = "a"}).skip.empty());
    CHECK(policy.on_failure({.message = "a"}).skip.empty()); // there is none
    policy.on_progress("checkpoint_000001", 10);
    CHECK(policy.on_failure({.message = "a"}).skip.empty());
    CHECK(policy.on_failure({.message = "a"}).skip ==
          std::vector<std::string>{"checkpoint_000001"});
}

TEST_CASE("FailurePolicy.failures_from_outside_blame_no_checkpoint") {
    FailurePolicy policy({.max_failures = -1});
    for (int i = 0; i < 100; ++i) {
        const auto decision = policy.on_failure({.kind = Kind::died,
                                                 .code = "RT-L2",
                                                 .message = "rank 1 was killed by signal 9",
                                                 .from_outside = is_sent_by_others(SIGKILL)},
                                                "checkpoint_000001");
        CHECK(decision.restart);
        CHECK(decision.skip.empty());
    }
    CHECK(!is_sent_by_others(SIGSEGV));
    CHECK(!is_sent_by_others(SIGABRT));
}

TEST_CASE("FailurePolicy.a_crash_loop_ends") {
    FailurePolicy policy({.max_failures = -1});
    int restarts = 0;
    int iteration = 3;
    // What it reads after the third iteration is bad; each fall back repeats one iteration.
    for (int checkpoint = 0; restarts < 100; ++checkpoint) {
        policy.on_progress("checkpoint_" + std::to_string(checkpoint), iteration);
        const auto decision =
            policy.on_failure({.message = "record " + std::to_string(checkpoint) + " is bad"});
        if (!decision.restart) {
            CHECK(decision.reason == "6 equal failures without progress");
            break;
        }
        ++restarts;
    }
    CHECK(restarts == 5);
    // Progress begins the count anew.
    for (int i = 0; i < 50; ++i) {
        policy.on_progress("checkpoint", ++iteration);
        CHECK(policy.on_failure({.message = "record 1 is bad"}).restart);
    }
}
