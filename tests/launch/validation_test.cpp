// SPDX-License-Identifier: Apache-2.0
// Validation of checkpoints in whole runs, launched by the driver and by mpirun.
#include "support/programs.hpp"

#include <rtrain/journal/result.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using test::contains;
using test::count;
using test::Ended;

namespace {

struct Launch {
    int ranks; ///< that say something
    bool driven;
};
const std::vector<Launch> launches{{2, true}, {1, false}, {3, false}};
const std::vector<std::string> policies{"sync", "async", "sharded"};

Ended launched(const Launch& how, const std::string& variant, const std::string& policy,
               const test::Directory& storage) {
    const std::string command =
        RTRAIN_VALIDATING " " + variant + " " + policy + " " + storage.path().string();
    return how.driven ? test::run("timeout 60 " + command) : test::run_on(how.ranks, command);
}

/// Runs a variant in each launch with one policy; `check` looks at what it prints.
template <class Check>
void in_each_launch(const std::string& variant, Check check) {
    for (std::size_t i = 0; i < launches.size(); ++i) {
        const std::string& policy = policies[i];
        const test::Directory storage(variant + std::to_string(i));
        const Ended result = launched(launches[i], variant, policy, storage);
        CAPTURE(launches[i].ranks);
        CAPTURE(launches[i].driven);
        CAPTURE(policy);
        CAPTURE(result.output);
        CHECK(result.status == 0);
        check(result.output, launches[i].ranks, storage);
        // What main() prints comes from the driver, or once from each rank; never from helpers.
        CHECK(count(result.output, "MAIN") == (launches[i].driven ? 1 : launches[i].ranks));
        CHECK(test::no_process_is_left(storage));
    }
}

} // namespace

TEST_CASE("Validation.reorders_the_checkpoints_that_are_kept") {
    in_each_launch("keep", [](const std::string& output, int, const test::Directory& storage) {
        CHECK(contains(output, "BEST 3 5E0 latest checkpoint_000002"));
        CHECK(contains(output, "printed while validating"));
        CHECK(contains(output, "the metric \"pid\" was dropped"));
        CHECK(!std::filesystem::exists(storage.path() / "r/checkpoint_000000"));
        // The storage says the same to everybody else.
        const auto result = rtrain::Result::from_path(storage.path() / "r");
        CHECK(result.best_checkpoints.at(1).second.at("score").to_number<double>() == 5);
        CHECK(result.best_checkpoints.at(1).second.at("pid") != 1);
        CHECK(result.get_best_checkpoint("score", "max") == result.checkpoint);
    });
}

TEST_CASE("Validation.failures_do_not_fail_the_run") {
    in_each_launch("failing", [](const std::string& output, int ranks, const test::Directory&) {
        CHECK(count(output, "STATUS checkpoint_000000=1E0,validation_failed"
                            " checkpoint_000001=2E1,validated"
                            " checkpoint_000002=3E0,validation_failed"
                            " checkpoint_000003=4E0,validation_timeout"
                            " checkpoint_000004=5E1,validated rank") == ranks);
        CHECK(contains(output, "validation of checkpoint_000000 failed: the validation function "
                               "threw: bad luck"));
        CHECK(contains(output, "was killed by signal 9 (Killed) [RT-L5]"));
        CHECK(contains(output, "took longer than 1 s [RT-L6]"));
        CHECK(contains(output, "latest checkpoint_000004"));
    });
}

TEST_CASE("Validation.can_be_waited_for_or_not") {
    in_each_launch("consistency", [](const std::string& output, int ranks, const test::Directory&) {
        CHECK(count(output, "COMMITTED checkpoint_000000=1,pending_validation") == ranks);
        CHECK(count(output, "IMPATIENT checkpoint_000000=1,pending_validation") == ranks);
        CHECK(count(output, "VALIDATED checkpoint_000000=1E1,validated") == ranks);
    });
}

TEST_CASE("Validation.reports_without_checkpoint_are_not_listed") {
    in_each_launch("listing", [](const std::string& output, int ranks, const test::Directory&) {
        CHECK(count(output, "FIRST checkpoint_000000=1E0,committed rank") == ranks);
        CHECK(count(output, "SECOND checkpoint_000000=1E0,committed "
                            "checkpoint_000001=2E0,committed rank") == ranks);
    });
}

TEST_CASE("Validation.waiting_checkpoints_are_not_deleted") {
    in_each_launch(
        "pending", [](const std::string& output, int ranks, const test::Directory& storage) {
            CHECK(count(output, "PENDING checkpoint_000000=50,committed "
                                "checkpoint_000001=none,pending_validation "
                                "checkpoint_000002=none,pending_validation rank") == ranks);
            CHECK(count(output, "ENDED checkpoint_000002=2E2,validated rank") == ranks);
            CHECK(!std::filesystem::exists(storage.path() / "r/checkpoint_000000"));
            CHECK(!std::filesystem::exists(storage.path() / "r/checkpoint_000001"));
        });
}

TEST_CASE("Validation.is_made_up_for_after_a_restart") {
    const test::Directory storage("interrupted");
    const Ended driven = launched({2, true}, "interrupted", "sync", storage);
    CAPTURE(driven.output);
    CHECK(driven.status == 0);
    CHECK(contains(driven.output, "restart 1 of 1"));
    CHECK(count(driven.output, "STATUS checkpoint_000000=4.2E1,validated") == 2);
    CHECK(test::no_process_is_left(storage)); // nor the helper of the first attempt

    const test::Directory other("interrupted-mpirun");
    const Ended first = launched({2, false}, "interrupted", "async", other);
    CHECK(first.status != 0);
    CHECK(test::no_process_is_left(other));
    const Ended second = launched({2, false}, "interrupted", "async", other);
    CAPTURE(second.output);
    CHECK(second.status == 0);
    CHECK(count(second.output, "STATUS checkpoint_000000=4.2E1,validated") == 2);
}

TEST_CASE("Validation.in_the_second_fit_of_a_program") {
    in_each_launch("second-fit", [](const std::string& output, int, const test::Directory&) {
        CHECK(contains(output, "BEST 2E1 latest"));
        CHECK(contains(output, "BEST 2.2E1 latest"));
        CHECK(count(output, "trained r\n") == 1); // helpers do not train
        CHECK(count(output, "trained second\n") == 1);
    });
}

TEST_CASE("Validation.of_directories") {
    in_each_launch("directory", [](const std::string& output, int ranks, const test::Directory&) {
        CHECK(count(output, "STATUS checkpoint_000000=\"out!\",validated "
                            "checkpoint_000001=\"out!\",validated "
                            "inside=\"in!\",validated rank") == ranks);
    });
}

TEST_CASE("Validation.where_the_storage_is_no_directory_of_this_machine") {
    for (const char* const policy : {"sync-elsewhere", "async-elsewhere", "sharded-elsewhere"}) {
        const test::Directory storage(policy);
        const Ended first = launched({2, false}, "keep", policy, storage);
        CAPTURE(first.output);
        CHECK(first.status == 0);
        CHECK(contains(first.output, "BEST 3 5E0 latest checkpoint_000002"));
        CHECK(
            std::filesystem::exists(storage.path() / "runs/r/checkpoint_000002/.validation.json"));
        CHECK(!std::filesystem::exists(storage.path() / "runs/r/checkpoint_000000"));
        CHECK(test::no_process_is_left(storage));
    }
    const test::Directory storage("interrupted-elsewhere");
    const Ended driven = launched({2, true}, "interrupted", "sync-elsewhere", storage);
    CAPTURE(driven.output);
    CHECK(driven.status == 0);
    CHECK(count(driven.output, "STATUS checkpoint_000000=4.2E1,validated") == 2);
}

TEST_CASE("Validation.a_killed_run_leaves_no_helper") {
    for (const bool driven : {true, false}) {
        const test::Directory storage(driven ? "endless-driven" : "endless-mpirun");
        const std::string command = RTRAIN_VALIDATING " endless sync " + storage.path().string();
        const auto validates = storage.path() / "validates";
        const auto result = driven ? test::run(test::signalled("KILL", validates) + " " + command)
                                   : test::run_on(2, command, test::signalled("TERM", validates));
        CAPTURE(result.output);
        CHECK(result.status != 0);
        CHECK(std::filesystem::exists(storage.path() / "r/checkpoint_000000"));
        CHECK(test::no_process_is_left(storage));
    }
}
