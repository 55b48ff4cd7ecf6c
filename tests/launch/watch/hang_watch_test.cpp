// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"

#include <rtrain/launch/watch/hang_watch.hpp>

#include <doctest/doctest.h>

#include <functional>

using namespace rtrain;
using namespace rtrain::launch;
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

TEST_CASE("HangWatch.ranks_that_wait_for_a_call_of_main_are_not_hung") {
    Ranks ranks(2, {.idle_s = 5, .busy_s = 20});
    ranks.act = [](Ranks& all) { all.step(); };
    CHECK(!ranks.go(10));
    ranks.act = [](Ranks& all) { // the others are in a collective already
        all.reports[0].phase = Phase::waiting;
        all.wait(1);
    };
    CHECK(!ranks.go(10'000));
    ranks.act = [](Ranks& all) { // the call has come, and hangs
        all.reports[0].phase = Phase::training;
        all.wait(0);
        all.wait(1);
    };
    CHECK(ranks.go(10)->kind == Found::idle);
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
