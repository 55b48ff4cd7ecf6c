// SPDX-License-Identifier: Apache-2.0
// How failures and hangs are judged: Failure, FailurePolicy, HangWatch, grouped errors. Includes no
// libtorch.
#include "../thrown.hpp"

#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/failure_json.hpp>
#include <rtrain/base/grouped_errors.hpp>
#include <rtrain/launch/supervise/failure_policy.hpp>
#include <rtrain/launch/watch/hang_watch.hpp>
#include <rtrain/process/os/processor_time.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <ctime>
#include <functional>

#include <sys/wait.h>
#include <unistd.h>

using namespace rtrain;
using namespace rtrain::launch;
using Kind = Failure::Kind;
using Found = HangWatch::Finding::Kind;
using test::contains;

namespace {

HangWatch::Clock::time_point at(double time_s) {
    return HangWatch::Clock::time_point{} + std::chrono::duration_cast<HangWatch::Clock::duration>(
                                                std::chrono::duration<double>(1000 + time_s));
}

/// Ranks that report each 0.2 s to a driver that looks as often.
struct Ranks {
    std::vector<RankReport> reports;
    HangWatch watch;
    double time_s = 0;
    /// What happens in 0.2 s; by default nothing.
    std::function<void(Ranks&)> act = [](Ranks&) {};
    std::function<bool(int rank)> reports_now = [](int) { return true; };
    std::vector<HangWatch::Finding> stragglers;

    explicit Ranks(int size, HangConfig config = {}) : watch(config, size) {
        for (int rank = 0; rank < size; ++rank) {
            reports.push_back({.rank = rank, .phase = Phase::training});
        }
    }

    void step() {
        for (RankReport& report : reports) {
            ++report.steps;
            ++report.progress;
            report.waiting_in.clear();
        }
    }
    void wait(int rank, const char* what = "all_reduce") {
        auto& report = reports[static_cast<std::size_t>(rank)];
        report.collectives += report.waiting_in.empty() ? 1U : 0U;
        report.waiting_in = what;
    }
    void compute(int rank, double part = 1) {
        reports[static_cast<std::size_t>(rank)].cpu_s += 0.2 * part;
    }

    /// The first hang within so many seconds.
    std::optional<HangWatch::Finding> go(double length_s) {
        for (auto ticks = std::lround(length_s / 0.2); ticks > 0; --ticks, time_s += 0.2) {
            act(*this);
            for (const RankReport& report : reports) {
                if (reports_now(report.rank)) {
                    watch.on_report(report, at(time_s));
                }
            }
            if (auto finding = watch.look(at(time_s))) {
                if (finding->is_hang) {
                    return finding;
                }
                stragglers.push_back(*finding);
            }
        }
        return std::nullopt;
    }
};

} // namespace

TEST_CASE("ProcessorTime.that_of_children_counts_while_they_run_and_behind") {
    const double before_s = process::processor_time_of_children_s();
    int ready[2];
    int end[2];
    REQUIRE(::pipe(ready) == 0);
    REQUIRE(::pipe(end) == 0);
    const pid_t child = ::fork();
    if (child == 0) { // and a child of its own, which computes
        ::close(end[1]);
        if (::fork() == 0) {
            timespec used{};
            while (used.tv_sec == 0 && used.tv_nsec < 200'000'000) {
                ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
            }
            (void)!::write(ready[1], "x", 1);
        }
        char byte = 0;
        (void)!::read(end[0], &byte, 1); // until the test is over
        while (::wait(nullptr) > 0) {
        }
        ::_exit(0);
    }
    ::close(end[0]);
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    CHECK(process::processor_time_of_children_s() - before_s >= 0.15); // in ticks of 10 ms
    CHECK(process::processor_time_s() >= 0.15);
    ::close(end[1]);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    CHECK(process::processor_time_of_children_s() - before_s >= 0.15);
}

TEST_CASE("GroupedErrors.numbers_do_not_tell_errors_apart") {
    CHECK(without_numbers("rank 3: 17 of 0x7fff12 at 1.5e-3s, v2.10") ==
          "rank <NUM>: <NUM> of <NUM> at <NUM>s, v<NUM>");
    CHECK(without_numbers("1e 2E+ 3. .5 0x 12e+7") == "<NUM>e <NUM>E+ <NUM>. .<NUM> <NUM>x <NUM>");
    CHECK(without_numbers("") == "");
    CHECK(without_numbers("no number") == "no number");
}

TEST_CASE("GroupedErrors.equal_errors_come_once_with_their_ranks") {
    CHECK(group_by_text({{3, "out of memory"},
                         {0, "file 10 is missing"},
                         {1, "file 11 is missing"},
                         {2, "file 12 is missing"}},
                        4) == "\n  ranks 0-2 of 4: file 10 is missing"
                              "\n  rank 3 of 4: out of memory");
    CHECK(group_by_text({{1, "b"}, {0, "c"}}, 2) == "\n  rank 0 of 2: c\n  rank 1 of 2: b");
    CHECK(group_by_text({}, 2) == "");
    // All ranks throw what one of them met.
    CHECK(group_by_text({{0, "rank 1 of 2: full"}, {1, "rank 1 of 2: full"}}, 2) ==
          "\n  rank 1 of 2: full");
    CHECK(group_by_text({{0, "rank 1 of 2: full"}, {1, "torn"}}, 2) ==
          "\n  rank 1 of 2: full\n  rank 1 of 2: torn");
    CHECK(group_by_text({{0, "rank 1 of 3: full"}, {1, "rank 5 of 2: torn"}}, 2) ==
          "\n  rank 0 of 2: rank 1 of 3: full\n  rank 1 of 2: rank 5 of 2: torn");
    CHECK(list_of_ranks({0, 1, 3, 5, 6, 7, 8, 10}) == "0, 1, 3, 5-8, 10");
    CHECK(list_of_ranks({}) == "");
    CHECK(group_by_text({{0, "full"}, {1, "full"}}, 2) == "\n  ranks 0, 1 of 2: full");
}

TEST_CASE("GroupedErrors.a_rank_is_named_once") {
    using rtrain::detail::with_rank;
    CHECK(with_rank(0, 2, "full") == "rank 0 of 2: full");
    CHECK(with_rank(0, 2, "rank 1 of 2: full") == "rank 1 of 2: full");
    CHECK(with_rank(0, 2, "rank 1 waited") == "rank 0 of 2: rank 1 waited");
    CHECK(with_rank(0, 2, "rank ") == "rank 0 of 2: rank ");
    CHECK(with_rank(0, 2, "") == "rank 0 of 2: ");
}

TEST_CASE("Failure.comes_back_from_json_as_it_was") {
    for (const Kind kind : {Kind::threw, Kind::interrupted, Kind::died, Kind::hang, Kind::start_up,
                            Kind::preemption, Kind::configuration}) {
        for (const char* const code : {"", "RT-T2", "RT-X9", "RT-T3", "RT-L2"}) {
            const Failure failure{.kind = kind,
                                  .code = ErrorCode::parse(code),
                                  .rank = kind == Kind::died ? 3 : -1,
                                  .message = "line\n\"two\"",
                                  .from_outside = kind == Kind::died};
            CHECK(failure_from(to_json(failure)) == failure);
            CHECK(decode_failure(encode(failure, 1000)) == failure);
        }
    }
}

TEST_CASE("Failure.what_was_written_before_it_had_all_its_fields_is_read") {
    const auto read = [](const char* code) {
        return failure_from({{"code", code}, {"message", "why"}, {"checkpoint", "c"}});
    };
    CHECK(read("RT-L2") == Failure{.code = "RT-L2", .message = "why"});
    CHECK(read("RT-X1").kind == Kind::interrupted);
    CHECK(read("RT-X9").kind == Kind::interrupted);
    CHECK(read("RT-T3").kind == Kind::preemption);
    // And what is to come.
    CHECK(failure_from({{"code", "RT-D1"}, {"message", "why"}, {"how", "melted"}}).kind ==
          Kind::threw);
    // Who was built before reads what a rank says of an exception: these two fields, and no others.
    CHECK(to_json(Failure{.kind = Kind::interrupted, .code = "RT-X1", .message = "why"}).size() ==
          2);
    CHECK(to_json(Failure{.code = "RT-T2", .message = "why"}).size() == 2);
}

TEST_CASE("Failure.travels_in_a_message_of_limited_size") {
    for (const std::string& message :
         {std::string(10'000, 'x'), std::string(10'000, '\x01'), std::string(10'000, '\xff')}) {
        const std::string line = encode({.code = "RT-T2", .message = message}, 3000);
        CHECK(line.size() <= 3000);
        const Failure failure = decode_failure(line);
        CHECK(failure.message.size() > 200);
        CHECK(failure.message[0] == (message[0] == '\xff' ? '?' : message[0]));
    }
}

TEST_CASE("Failure.text_is_what_the_exception_says") {
    CHECK(Failure{.code = "RT-D4", .message = "torn"}.text() == "torn [RT-D4]");
    CHECK(Failure{.code = "RT-T2", .message = "torn"}.text() == "torn");
    CHECK(Failure{.kind = Kind::died, .message = "the process died"}.text() == "the process died");
}

TEST_CASE("Failure.what_is_no_exception_is_described") {
    const auto text = [](auto value) {
        return rtrain::detail::failure_in([&] { throw value; }).value().message;
    };
    CHECK(text(42) == "threw an object of type int, 42, which is not derived from std::exception");
    CHECK(contains(text("full"), "\"full\""));
    CHECK(contains(text(std::string("full")), "\"full\""));
    CHECK(contains(text(2.5), "an object of type double, which"));
}

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

TEST_CASE("HangWatch.a_stopped_process_is_found_at_once") {
    Ranks ranks(3, {.stopped_s = 1.5});
    ranks.act = [](Ranks& all) { all.step(); };
    CHECK(!ranks.go(10));
    ranks.watch.set_stopped(1, true, at(ranks.time_s));
    CHECK(!ranks.go(1));
    ranks.watch.set_stopped(1, true, at(ranks.time_s)); // still
    const auto finding = ranks.go(1);
    REQUIRE(finding);
    CHECK(finding->kind == Found::stopped);
    CHECK(finding->rank == 1);
    CHECK(contains(finding->text, "rank 1 is stopped"));
    ranks.watch.set_stopped(1, false, at(ranks.time_s));
    CHECK(!ranks.go(10));
}

TEST_CASE("HangWatch.how_long_a_rank_may_be_stopped_or_silent_is_an_option") {
    const auto stop = [](Ranks& ranks) { // as SIGSTOP does: it does not report, either
        ranks.act = [](Ranks& all) { all.step(); };
        CHECK(!ranks.go(10));
        ranks.reports_now = [](int rank) { return rank != 1; };
        ranks.watch.set_stopped(1, true, at(ranks.time_s));
    };
    Ranks ranks(3);
    stop(ranks);
    CHECK(!ranks.go(9.5));
    CHECK(ranks.go(1)->kind == Found::stopped);
    Ranks briefly(3);
    stop(briefly);
    CHECK(!briefly.go(5));
    briefly.reports_now = [](int) { return true; };
    briefly.watch.set_stopped(1, false, at(briefly.time_s));
    CHECK(!briefly.go(100));
    Ranks patient(3, {.stopped_s = 100});
    stop(patient);
    CHECK(!patient.go(99));
    CHECK(patient.go(2)->kind == Found::stopped);
    Ranks silent(3, {.silent_s = 100});
    silent.act = [](Ranks& all) { all.step(); };
    CHECK(!silent.go(10));
    silent.reports_now = [](int rank) { return rank != 1; };
    CHECK(!silent.go(99));
    CHECK(silent.go(2)->kind == Found::silent);
}

TEST_CASE("HangWatch.ranks_outside_rtrain_are_at_work") {
    for (const bool all_outside : {false, true}) { // one evaluates elsewhere; all have a simulator
        CAPTURE(all_outside);
        Ranks ranks(3);
        ranks.act = [](Ranks& all) { all.step(); };
        CHECK(!ranks.go(20));
        ranks.act = [&](Ranks& all) {
            if (!all_outside) {
                all.wait(0);
                all.wait(2);
            }
        };
        CHECK(!ranks.go(590));
        const auto finding = ranks.go(15); // busy_s
        REQUIRE(finding);
        CHECK(finding->kind == Found::idle);
        CHECK(finding->rank == (all_outside ? 0 : 1));
        CHECK(contains(finding->text, "rank 1 waits for no rank") == !all_outside);
        CHECK(contains(finding->text, "raise failure.hang.busy_s or call worker.heartbeat()"));
    }
    Ranks beats(2);
    beats.act = [](Ranks& all) { all.step(); };
    CHECK(!beats.go(20));
    int ticks = 0;
    beats.act = [&](Ranks& all) {
        all.wait(0);
        all.reports[1].progress += ++ticks % 2500 == 0 ? 1 : 0; // worker.heartbeat() each 500 s
    };
    CHECK(!beats.go(5000));
}

TEST_CASE("HangWatch.long_work_of_one_rank_does_not_make_deadlocks_take_longer") {
    Ranks ranks(2);
    ranks.act = [](Ranks& all) { all.step(); };
    CHECK(!ranks.go(20));
    ranks.act = [](Ranks& all) { all.wait(0); };
    CHECK(!ranks.go(500));
    ranks.act = [](Ranks& all) {
        all.wait(0);
        all.wait(1, "barrier");
    };
    CHECK(!ranks.go(59));
    CHECK(ranks.go(3)->kind == Found::idle);
}

TEST_CASE("HangWatch.time_in_which_nobody_reads_what_ranks_print_does_not_count") {
    for (const bool told_by_rank : {false, true}) {
        for (const bool all_wait : {false, true}) {
            CAPTURE(told_by_rank);
            CAPTURE(all_wait);
            Ranks ranks(2);
            const auto block = [&](bool blocked) {
                ranks.watch.set_output_blocked(!told_by_rank && blocked);
                ranks.reports[1].output_blocked = told_by_rank && blocked;
            };
            ranks.act = [](Ranks& all) { all.step(); };
            CHECK(!ranks.go(20));
            ranks.act = [&](Ranks& all) {
                all.wait(0);
                if (all_wait) {
                    all.wait(1, "barrier");
                }
            };
            const double limit_s = all_wait ? 60 : 600;
            CHECK(!ranks.go(limit_s / 2));
            block(true);
            CHECK(!ranks.go(10'000));
            block(false);
            CHECK(!ranks.go(limit_s / 2 - 2));
            CHECK(ranks.go(4));
        }
    }
}

TEST_CASE("HangWatch.a_rank_that_falls_silent_is_found") {
    Ranks ranks(3);
    ranks.act = [](Ranks& all) { all.step(); };
    CHECK(!ranks.go(10));
    ranks.reports_now = [](int rank) { return rank != 2; };
    CHECK(!ranks.go(9.5));
    const auto finding = ranks.go(2);
    REQUIRE(finding);
    CHECK(finding->kind == Found::silent);
    CHECK(finding->rank == 2);
}

TEST_CASE("HangWatch.a_rank_that_is_gone_for_good_is_not_waited_for") {
    Ranks ranks(3);
    ranks.act = [](Ranks& all) { all.step(); };
    CHECK(!ranks.go(10));
    ranks.reports_now = [](int rank) { return rank != 2; };
    ranks.watch.set_stopped(2, true, at(ranks.time_s)); // a zombie may look like that
    ranks.watch.set_gone(2);
    CHECK(!ranks.go(700));
    CHECK(contains(ranks.watch.describe(at(ranks.time_s)), "rank 2: has died"));
    ranks.act = [](Ranks& all) { all.wait(0), all.wait(1); };
    const auto finding = ranks.go(100); // those that are left are watched as before
    REQUIRE(finding);
    CHECK(finding->kind == Found::idle);
    CHECK(contains(finding->text, "ranks 0, 1 wait in all_reduce"));
}

TEST_CASE("HangWatch.reports_that_are_late_together_prove_nothing") {
    Ranks ranks(3);
    ranks.act = [](Ranks& all) { all.step(); };
    CHECK(!ranks.go(10));
    ranks.reports_now = [](int) { return false; };
    CHECK(!ranks.go(40)); // below idle_s
    ranks.reports_now = [](int rank) { return rank == 0; };
    CHECK(!ranks.go(5)); // the first that comes back does not accuse the others
    ranks.reports_now = [](int) { return true; };
    CHECK(!ranks.go(10));
    // But not for ever.
    ranks.reports_now = [](int) { return false; };
    const auto finding = ranks.go(600);
    REQUIRE(finding);
    CHECK(finding->kind == Found::silent);
    CHECK(finding->rank == -1);
}

TEST_CASE("HangWatch.time_in_which_the_driver_was_stopped_does_not_count") {
    for (const bool look_first : {false, true}) {
        Ranks ranks(2);
        ranks.act = [](Ranks& all) { all.step(); };
        CHECK(!ranks.go(10));
        ranks.act = [](Ranks& all) { all.wait(0), all.wait(1); };
        CHECK(!ranks.go(50)); // ranks pause, within idle_s
        ranks.time_s += 10000;
        if (look_first) {
            CHECK(!ranks.watch.look(at(ranks.time_s)));
        }
        CHECK(!ranks.go(9)); // 59 s of a pause have been seen
        CHECK(ranks.go(2));
    }
    // Nor is it a pause of the ranks that makes the limits longer.
    Ranks ranks(2);
    ranks.act = [](Ranks& all) { all.step(); };
    CHECK(!ranks.go(10));
    ranks.time_s += 10000;
    CHECK(!ranks.go(10));
    ranks.act = [](Ranks& all) { all.wait(0), all.wait(1); };
    CHECK(!ranks.go(59));
    CHECK(ranks.go(2));
}

TEST_CASE("HangWatch.a_deadlock_is_idle_also_when_waiting_ranks_spin") {
    for (const double spin : {0.0, 1.0}) {
        Ranks ranks(3);
        ranks.act = [](Ranks& all) { all.step(); };
        CHECK(!ranks.go(20));
        ranks.act = [&](Ranks& all) {
            all.wait(0);
            all.wait(1, "receive");
            all.wait(2, "barrier");
            all.compute(0, spin);
            all.compute(2, spin);
        };
        CHECK(!ranks.go(59));
        const auto finding = ranks.go(3);
        REQUIRE(finding);
        CHECK(finding->kind == Found::idle);
        CHECK(contains(finding->text, "and none computes: rank 0 waits in all_reduce, rank 2 waits "
                                      "in barrier, rank 1 waits in receive"));
        CHECK_FALSE(contains(finding->text, "heartbeat"));
        const auto all = ranks.watch.describe(at(ranks.time_s));
        CHECK(contains(all, "rank 0: training, step 100, waits in all_reduce for 6"));
        CHECK(contains(all, "\nrank 1: training, step 100, waits in receive for 6"));
    }
}

TEST_CASE("HangWatch.a_deadlock_is_known_before_the_limit") {
    const auto deadlocked = [](Ranks& ranks) {
        const auto finding = ranks.watch.deadlock(at(ranks.time_s));
        CHECK((!finding || contains(finding->text, "rank 0 waits in all_reduce")));
        return finding.has_value();
    };
    Ranks ranks(2);
    ranks.act = [](Ranks& all) { all.step(); };
    CHECK(!ranks.go(20));
    CHECK_FALSE(deadlocked(ranks));
    ranks.act = [](Ranks& all) {
        all.wait(0);
        all.wait(1, "barrier");
    };
    CHECK(!ranks.go(4));
    CHECK_FALSE(deadlocked(ranks)); // they may be slow
    CHECK(!ranks.go(2));
    CHECK(deadlocked(ranks));
    // Who waits for no rank may come yet.
    ranks.reports[1].waiting_in.clear();
    ranks.act = [](Ranks&) {};
    CHECK(!ranks.go(10));
    CHECK_FALSE(deadlocked(ranks));
}

TEST_CASE("HangWatch.slow_collectives_are_no_deadlock") {
    Ranks ranks(2);
    int ticks = 0;
    ranks.act = [&](Ranks& all) { // a step each 4 s, nearly all of it in an all-reduce
        if (++ticks % 20 == 0) {
            all.step();
        } else {
            all.wait(0);
            all.wait(1);
        }
    };
    CHECK(!ranks.go(60));
    ranks.act = [](Ranks& all) {
        all.wait(0);
        all.wait(1);
    };
    CHECK(!ranks.go(30));
    CHECK_FALSE(ranks.watch.deadlock(at(ranks.time_s)).has_value());
    CHECK(!ranks.go(15));
    CHECK(ranks.watch.deadlock(at(ranks.time_s)).has_value());
}

TEST_CASE("HangWatch.who_has_waited_in_fewer_collectives_is_named") {
    Ranks ranks(2);
    ranks.act = [](Ranks& all) { all.step(); };
    CHECK(!ranks.go(5));
    ranks.wait(0);
    ranks.reports[0].waiting_in.clear();
    ranks.act = [](Ranks& all) {
        all.wait(0);
        all.wait(1);
    };
    const auto finding = ranks.go(70);
    REQUIRE(finding);
    CHECK(finding->rank == 1);
    CHECK(contains(finding->text, "ranks 0, 1 wait in all_reduce"));
}

TEST_CASE("HangWatch.an_evaluation_on_one_rank_is_no_hang") {
    Ranks ranks(4);
    ranks.act = [](Ranks& all) { all.step(); };
    CHECK(!ranks.go(20));
    int tick = 0;
    ranks.act = [&](Ranks& all) {
        for (int rank = 1; rank < 4; ++rank) {
            all.wait(rank);
        }
        // A loaded machine: it gets its core for half a second every three.
        all.compute(0, ++tick % 15 < 3 ? 1 : 0);
    };
    CHECK(!ranks.go(590));
    const auto finding = ranks.go(15); // busy_s
    REQUIRE(finding);
    CHECK(finding->kind == Found::busy);
    CHECK(finding->rank == 0);
    CHECK(contains(finding->text, "but rank 0 computes"));
}

TEST_CASE("HangWatch.limits_grow_with_the_pauses_of_the_run") {
    const HangConfig config{.idle_s = 5, .busy_s = 10, .factor = 4};
    const auto pause = [](Ranks& ranks, double length_s, bool computes) {
        ranks.act = [computes](Ranks& all) {
            all.wait(1);
            if (computes) {
                all.compute(0);
            } else {
                all.wait(0, "barrier");
            }
        };
        auto finding = ranks.go(length_s);
        ranks.act = [](Ranks& all) { all.step(); };
        return finding ? finding : ranks.go(5);
    };
    SUBCASE("idle ones") {
        Ranks ranks(2, config);
        CHECK(!pause(ranks, 1, false));
        CHECK(!pause(ranks, 4, false));
        CHECK(!pause(ranks, 15, false));
        CHECK(pause(ranks, 70, false)->kind == Found::idle);
    }
    SUBCASE("busy ones do not make idle ones longer") {
        Ranks ranks(2, config);
        CHECK(!pause(ranks, 1, true));
        CHECK(!pause(ranks, 9, true));
        CHECK(!pause(ranks, 33, true));
        CHECK(pause(ranks, 8, false)->kind == Found::idle);
    }
    SUBCASE("and are forgotten") {
        Ranks ranks(2, config);
        CHECK(!pause(ranks, 1, false));
        CHECK(!pause(ranks, 4, false));
        ranks.act = [](Ranks& all) { all.step(); };
        CHECK(!ranks.go(31 * 60));
        CHECK(pause(ranks, 8, false)->kind == Found::idle);
    }
}

TEST_CASE("HangWatch.starting_has_a_limit_of_its_own") {
    const HangConfig config{.start_s = 100};
    Ranks late(2, config);
    late.reports_now = [](int rank) { return rank == 0; };
    CHECK(!late.go(99));
    const auto missing = late.go(2);
    REQUIRE(missing);
    CHECK(missing->kind == Found::starting);
    CHECK(missing->rank == 1);
    CHECK(contains(missing->text, "rank 1 has not joined"));
    CHECK(contains(late.watch.describe(at(late.time_s)), "rank 1: has not joined\n"));

    Ranks loading(2, config);
    for (auto& report : loading.reports) {
        report.phase = Phase::starting;
    }
    CHECK(!loading.go(99));
    ++loading.reports[1].progress; // reads a large checkpoint
    CHECK(!loading.go(99));
    const auto stuck = loading.go(2);
    REQUIRE(stuck);
    CHECK(stuck->kind == Found::starting);
    CHECK(contains(stuck->text, "rank 0 has not started to train"));
}

TEST_CASE("HangWatch.ranks_that_are_done_are_not_watched") {
    Ranks ranks(2);
    ranks.act = [](Ranks& all) { all.step(); };
    CHECK(!ranks.go(5));
    ranks.act = [](Ranks&) {};
    ranks.reports[0].phase = Phase::done;
    CHECK(!ranks.go(1));
    ranks.reports_now = [](int rank) { return rank == 1; };
    CHECK(!ranks.go(590));
    CHECK(ranks.go(20)->rank == 1);
    ranks.reports[1].phase = Phase::done;
    CHECK(!ranks.go(10000));
}

TEST_CASE("HangWatch.it_can_be_switched_off") {
    Ranks ranks(2, {.enabled = false});
    ranks.watch.set_stopped(0, true, at(0));
    CHECK(!ranks.go(2000));
}

TEST_CASE("HangWatch.reports_of_no_rank_are_ignored") {
    HangWatch watch({}, 1);
    watch.on_report({.rank = 1}, at(0));
    watch.on_report({.rank = -1}, at(0));
    CHECK(contains(watch.describe(at(0)), "rank 0: has not joined"));
}

namespace {

/// Steps of which each rank computes a part and then waits for the slowest.
struct Steps {
    std::vector<double> length_s; ///< of each rank
    double begun_s = 0;
    int steps = 0;

    void operator()(Ranks& all) {
        const double slowest = *std::max_element(length_s.begin(), length_s.end());
        while (all.time_s - begun_s >= slowest) {
            begun_s += slowest;
            ++steps;
            all.step();
        }
        for (std::size_t rank = 0; rank < length_s.size(); ++rank) {
            if (all.time_s - begun_s >= length_s[rank]) {
                all.wait(static_cast<int>(rank));
            }
            all.compute(static_cast<int>(rank));
        }
    }
};

} // namespace

TEST_CASE("HangWatch.a_rank_five_times_slower_is_named_within_20_steps") {
    for (const double step_s : {0.3, 1.0, 7.0}) {
        CAPTURE(step_s);
        Ranks ranks(4);
        Steps steps{{step_s, step_s * 1.05, step_s * 0.9, step_s}};
        ranks.act = [&](Ranks& all) { steps(all); };
        CHECK(!ranks.go(60 * step_s));
        CHECK(ranks.stragglers.empty());
        steps.length_s[2] = 5 * step_s;
        const int before = steps.steps;
        while (ranks.stragglers.empty() && steps.steps < before + 100) {
            REQUIRE(!ranks.go(0.2));
        }
        CHECK(steps.steps - before <= 20);
        REQUIRE(ranks.stragglers.size() == 1);
        CHECK(ranks.stragglers[0].kind == Found::straggler);
        CHECK(ranks.stragglers[0].rank == 2);
        CHECK(contains(ranks.stragglers[0].text, "rank 2 slows the others down"));
        CHECK(!ranks.go(60 * step_s)); // once
        CHECK(ranks.stragglers.size() == 1);
    }
}

TEST_CASE("HangWatch.a_straggler_among_those_whom_another_has_left_is_named") {
    Ranks ranks(4);
    Steps steps{{0.5, 0.5, 0.5, 0.5}};
    ranks.act = [&](Ranks& all) { steps(all); };
    CHECK(!ranks.go(30));
    ranks.watch.set_gone(0);
    ranks.reports_now = [](int rank) { return rank != 0; };
    CHECK(!ranks.go(30));
    CHECK(ranks.stragglers.empty());
    steps.length_s[2] = 2.5;
    CHECK(!ranks.go(60));
    REQUIRE(ranks.stragglers.size() == 1);
    CHECK(ranks.stragglers[0].rank == 2);
}

TEST_CASE("HangWatch.slow_ranks_without_a_slowest_are_no_stragglers") {
    Ranks ranks(3);
    Steps steps{{0.5, 0.5, 0.5}};
    ranks.act = [&](Ranks& all) { steps(all); };
    CHECK(!ranks.go(60));
    steps.length_s = {2.5, 2.5, 2.4}; // larger batches
    CHECK(!ranks.go(100));
    CHECK(ranks.stragglers.empty());
    // Each in its turn, as by load from elsewhere.
    ranks.act = [&](Ranks& all) {
        steps.length_s = {1, 1, 1};
        steps.length_s[static_cast<std::size_t>(steps.steps % 3)] = 6;
        steps(all);
    };
    CHECK(!ranks.go(300));
    CHECK(ranks.stragglers.empty());
}

TEST_CASE("HangWatch.evaluations_and_checkpoints_make_no_stragglers") {
    Ranks ranks(3);
    Steps steps{{0.5, 0.5, 0.5}};
    ranks.act = [&](Ranks& all) {
        steps.length_s[0] = steps.steps % 10 == 9 ? 30 : 0.5;
        steps(all);
    };
    CHECK(!ranks.go(600));
    CHECK(ranks.stragglers.empty());
    ranks.act = [&](Ranks& all) { // a checkpoint after each step
        steps.length_s[0] = 5;
        steps(all);
        all.reports[0].phase = all.time_s - steps.begun_s > 0.5 ? Phase::saving : Phase::training;
    };
    CHECK(!ranks.go(100));
    CHECK(ranks.stragglers.empty());
}
