// SPDX-License-Identifier: Apache-2.0
// Hangs under plain mpirun, where no driver looks: real processes, small limits.
#include "support/programs.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

using test::contains;
using test::count;

namespace {

test::Ended hanging(int ranks, const std::string& how, int rank, const test::Directory& storage) {
    return test::run_on(ranks, RTRAIN_HANGING " " + how + " " + std::to_string(rank) + " " +
                                   storage.path().string());
}

/// The job has ended as a driver would have it, and says so once. Its stacks are those of `stacks`.
void check_found(const test::Ended& ended, const std::string& finding,
                 const std::vector<int>& stacks) {
    CHECK(ended.status == 1);
    CHECK(count(ended.output, "rtrain: the ranks hang: " + finding) == 1);
    CHECK(count(ended.output, "[RT-L14]") == 1);
    CHECK_FALSE(contains(ended.output, "RESULT"));
    CHECK_FALSE(contains(ended.output, "ERROR"));
    for (const int rank : stacks) {
        CHECK(contains(ended.output, "stack of rank " + std::to_string(rank) + ":\n#0 "));
    }
}

} // namespace

TEST_CASE("MutualWatch.a_rank_that_sleeps_is_found") {
    for (const int ranks : {1, 2, 3}) {
        CAPTURE(ranks);
        const test::Directory storage("sleeps");
        const auto ended = hanging(ranks, "sleeps", ranks - 1, storage);
        CAPTURE(ended.output);
        check_found(ended, "no rank has made progress for", {0, ranks - 1});
        CHECK(contains(ended.output, "and none computes"));
        CHECK(contains(ended.output, "rank " + std::to_string(ranks - 1) + " waits for no rank"));
        CHECK(test::no_process_is_left(storage));
    }
}

TEST_CASE("MutualWatch.the_file_is_named_that_a_rank_waits_for") {
    const test::Directory storage("reads");
    const auto ended = hanging(2, "reads", 1, storage);
    CAPTURE(ended.output);
    check_found(ended, "no rank has made progress for", {0, 1});
    CHECK(contains(ended.output, "rank 1 waits for no rank"));
    CHECK(contains(ended.output, "rank 1 reads s3://bucket/stalled.csv, rows 0 to 9"));
    CHECK(test::no_process_is_left(storage));
}

TEST_CASE("MutualWatch.a_rank_that_spins_is_found") {
    const test::Directory storage("spins");
    const auto ended = hanging(2, "spins", 0, storage);
    CAPTURE(ended.output);
    check_found(ended, "no rank has made progress for", {0, 1});
    CHECK(contains(ended.output, "but rank 0 computes"));
    CHECK(test::no_process_is_left(storage));
}

TEST_CASE("MutualWatch.ranks_that_wait_for_each_other_are_found") {
    for (const int ranks : {2, 3}) {
        CAPTURE(ranks);
        const test::Directory storage("crosses");
        const auto ended = hanging(ranks, "crosses", 0, storage);
        CAPTURE(ended.output);
        check_found(ended, "no rank has made progress for", {0, 1, ranks - 1});
        CHECK(contains(ended.output, "waits in receive"));
        CHECK(contains(ended.output, "waits in barrier"));
        CHECK(test::no_process_is_left(storage));
    }
}

TEST_CASE("MutualWatch.a_rank_that_does_not_return_is_found") {
    const test::Directory storage("outstays");
    const auto ended = hanging(2, "outstays", 0, storage);
    CAPTURE(ended.output);
    check_found(ended, "no rank has made progress for", {0, 1});
    CHECK(contains(ended.output, "rank 0 waits for no rank, rank 1 waits in finish"));
}

TEST_CASE("MutualWatch.a_stopped_rank_is_found_whichever_it_is") {
    for (const int rank : {0, 1, 2}) {
        CAPTURE(rank);
        const test::Directory storage("stops");
        const auto ended = hanging(3, "stops", rank, storage);
        CAPTURE(ended.output);
        check_found(ended, "rank " + std::to_string(rank) + " is stopped",
                    {(rank + 1) % 3, (rank + 2) % 3});
        CHECK(test::no_process_is_left(storage));
    }
}

TEST_CASE("MutualWatch.one_rank_that_lives_is_enough") {
    const test::Directory storage("stops-most");
    const auto ended = hanging(3, "stops", -1, storage);
    CAPTURE(ended.output);
    check_found(ended, "rank 0 is stopped", {2});
    CHECK(test::no_process_is_left(storage));
}

TEST_CASE("MutualWatch.a_restart_in_the_same_processes_is_watched") {
    const test::Directory storage("throws-then-sleeps");
    const auto ended = hanging(2, "throws-then-sleeps", 1, storage);
    CAPTURE(ended.output);
    CHECK(contains(ended.output, "bad luck"));
    check_found(ended, "no rank has made progress for", {0, 1});
}

TEST_CASE("MutualWatch.every_fit_is_watched_and_nothing_between_them") {
    const test::Directory storage("sleeps-in-second");
    const auto ended = hanging(2, "sleeps-in-second", 1, storage);
    CAPTURE(ended.output);
    CHECK(count(ended.output, "SECOND") == 2);
    check_found(ended, "no rank has made progress for", {0, 1});
}

TEST_CASE("MutualWatch.slow_ranks_are_left_alone") {
    // Of "simulates", one rank, and all but one.
    for (const auto& [how, rank] : {std::pair<std::string, int>("paused", 1),
                                    {"computes", 1},
                                    {"simulates", 1},
                                    {"simulates", -1},
                                    {"beats", 1}}) {
        CAPTURE(how);
        CAPTURE(rank);
        const test::Directory storage(how);
        const auto ended = hanging(2, how, rank, storage);
        CAPTURE(ended.output);
        CHECK(ended.status == 0);
        CHECK(count(ended.output, "RESULT") == 2);
        CHECK_FALSE(contains(ended.output, "[RT-L"));
    }
}

TEST_CASE("MutualWatch.can_be_switched_off") {
    const test::Directory storage("sleeps-unwatched");
    const auto ended = hanging(2, "sleeps-unwatched", 1, storage);
    CAPTURE(ended.output);
    CHECK(ended.status == 0);
    CHECK(count(ended.output, "RESULT") == 2);
}
