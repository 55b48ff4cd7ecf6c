// SPDX-License-Identifier: Apache-2.0
// What the driver reads: lines of ranks, mpirun's reports of deaths, and outcomes of fit() calls.
#include "support/thrown.hpp"

#include <rtrain/base/json.hpp>
#include <rtrain/launch/fit_outcome.hpp>
#include <rtrain/launch/supervise/mpirun.hpp>
#include <rtrain/launch/supervise/rank_output.hpp>

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

using namespace rtrain;

TEST_CASE("RankOutput.tags_become_prefixes") {
    launch::RankOutput output;
    const auto complete = [&](const char* line) {
        return output.complete(line).value().readable();
    };
    CHECK(complete("[1,0]<stdout>:hello") == "[rank 0] hello");
    CHECK(complete("[1,12]<stderr>: spaced") == "[rank 12]  spaced");
    CHECK(complete("[prterun-host-77@1,3]<stdout>: hello") == "[rank 3] hello");
    CHECK(complete("[1,0]<stdout>:a[1,0]<stdout>:b") == "[rank 0] ab");
    CHECK(complete("[1,0]<stdout>:") == "[rank 0] ");
    CHECK(complete("[1,0]<stdout>:x [INFO] y") == "[rank 0] x [INFO] y");
    CHECK(complete("[1,0]<stderr>:full [RT-X1][1,0]<stderr>:") == "[rank 0] full [RT-X1]");
    CHECK(output.complete("[1,12]<stderr>:x").value().rank == 12);
    CHECK(!output.complete("mpirun noticed that process rank 1").has_value());
    CHECK(!output.complete("[node:123] something").has_value());
    CHECK(!output.complete("[1,]<stdout>:x").has_value());
    CHECK(!output.complete("[1,99999999999]<stdout>:x").has_value());
    CHECK(!output.complete("").has_value());
    CHECK(output.rest().empty());
    // Two ranks' long lines in pieces
    CHECK(complete("[1,1]<stdout>:a[1,0]<stdout>:x[1,1]<stdout>:b") == "[rank 1] ab");
    CHECK(complete("[1,1]<stdout>:c[1,0]<stdout>:y") == "[rank 0] xy");
    const auto rest = output.rest();
    REQUIRE(rest.size() == 1);
    CHECK(rest[0].readable() == "[rank 1] c");
}

TEST_CASE("RankOutput.records_say_themselves_whose_they_are") {
    const std::string record = console::record(1, console::Level::warning, "slow");
    const launch::RankLine line{1, record};
    CHECK(line.readable() == "[rank 1] " + record); // the program's own, for all we know
    const console::ScopedLogSettings speaking(console::Level::info, true);
    CHECK(line.readable() == record);
    CHECK(launch::RankLine{1, "text"}.readable() == "[rank 1] text");
}

TEST_CASE("Driver.deaths_are_described") {
    const auto text = [](int status, const std::string& says) {
        return launch::describe_death(status, says).text;
    };
    CHECK(text(137, "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 "
                    "(Killed).") == "rank 1 was killed by signal 9 (Killed)");
    CHECK(test::contains(text(3, "  Process name: [[7,1],2]\n  Exit code:    3\n"),
                         "rank 2 ended with exit code 3"));
    CHECK(test::contains(text(1, "no such option"), "no such option"));
    const std::string exited = text(1, "mpirun has exited due to process rank 1 with PID 0 on\n"
                                       "node vm exiting improperly. There are three reasons");
    CHECK(exited.starts_with("rank 1 exited, for example by _exit(), before"));
    CHECK(!test::contains(exited, "PID"));
}

TEST_CASE("Driver.deaths_are_those_of_ranks") {
    const auto death = launch::describe_death(
        137,
        "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).");
    CHECK(death.rank == 1);
    CHECK(death.signal == 9);
    CHECK(launch::describe_death(1, "no such option").rank == -1);
}

TEST_CASE("Ending.comes_back_from_its_file") {
    const std::vector<Failure> of_ranks{
        {.code = "RT-D4", .rank = 0, .message = "torn"},
        {.kind = Failure::Kind::died, .rank = 2, .message = "the process died"}};
    const auto ending = launch::FitOutcome::of(TrainingFailedError("it failed", of_ranks));
    const auto read = launch::ending_from(launch::to_json(ending));
    CHECK(read.failure == ending.failure);
    CHECK((read.of_ranks == of_ranks));
    CHECK(read.tells_of_deaths());
    const auto success = launch::ending_from(launch::to_json({.run = "/runs/a"}));
    CHECK(success.run == "/runs/a");
    CHECK(!success.failure);
}

TEST_CASE("Ending.files_from_before_are_read") {
    const auto read = [](const char* text) {
        return launch::ending_from(json::parse(text).as_object());
    };
    const auto success =
        read(R"({"run":"/runs/a","code":"","message":"","worker_failures":{},"died":[]})");
    CHECK(success.run == "/runs/a");
    CHECK(!success.failure);
    const auto failed = read(R"({"run":"","code":"RT-T1","message":"it failed",)"
                             R"("worker_failures":{"0":"torn [RT-D4]","2":"gone"},"died":[2]})");
    try {
        (void)failed.get(std::nullopt);
        FAIL("it returned");
    } catch (const TrainingFailedError& error) {
        CHECK(error.message() == "it failed");
        CHECK(error.worker_failures() ==
              std::map<int, std::string>{{0, "torn [RT-D4]"}, {2, "gone"}});
        CHECK(error.died() == std::vector<int>{2});
    }
    const auto interrupted =
        read(R"({"run":"","code":"RT-X9","message":"a","worker_failures":{},"died":[]})");
    REQUIRE(interrupted.failure);
    CHECK(interrupted.failure->kind == Failure::Kind::interrupted);
}
