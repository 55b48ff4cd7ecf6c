// SPDX-License-Identifier: Apache-2.0
// A Driver waits for ranks of any program: here the shell's.
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/journal/rank_logs.hpp>
#include <rtrain/launch/driver.hpp>
#include <rtrain/storage/local.hpp>

#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

using namespace rtrain;
using namespace rtrain::launch;

namespace {

/// Two ranks without mpirun in `directory`, whose script leaves its result in $RESULT.
Task task_in(const std::filesystem::path& directory, const std::string& script) {
    const auto result = directory / "result";
    std::filesystem::permissions(directory, std::filesystem::perms::owner_all);
    return {.program = Program::argv({"/bin/sh", "-c", script}),
            .prepare =
                [directory, result](const LaunchRequest& start) {
                    return LaunchEnvironment{
                        .variables = {{"RESULT", result.string()},
                                      {"ATTEMPT", std::to_string(start.attempt)}},
                        .directory = directory,
                        .keeps_input = true,
                        .rank_variables = {{{"RANK", "0"}}, {{"RANK", "1"}}}};
                },
            .result = [result]() -> std::optional<std::string> {
                return std::filesystem::exists(result) ? std::optional(test::read(result))
                                                       : std::nullopt;
            },
            .failure_in = [](const std::string&) { return std::nullopt; },
            .needs_mpi = false};
}

FailureConfig without_reports() {
    FailureConfig failure;
    failure.hang.enabled = false;
    return failure;
}

} // namespace

TEST_CASE("Driver.logs_what_ranks_print_also_in_a_thread" * doctest::timeout(60)) {
    const test::Directory directory("driver-logs");
    const ScalingConfig scaling{.num_workers = 2};
    const FailureConfig failure = without_reports();
    track::RankLogs logs({storage::Local{}, directory.path().string()}, false,
                         [](const std::string& what) { FAIL(what); });
    Task task = task_in(directory.path(), "echo \"$RANK in $ATTEMPT\"; "
                                          "[ $ATTEMPT.$RANK = 1.1 ] && exit 3; "
                                          "[ $ATTEMPT = 1 ] && exec sleep 1000; echo 17 > $RESULT");
    std::vector<std::string> of_rank_1;
    task.heard = [&](OutputStream, const RankLine& line) {
        if (line.rank == 1) {
            of_rank_1.push_back(line.text);
        }
    };
    int over = 0;
    std::optional<RunEnd> end;
    std::thread([&] {
        Driver driver({.task = std::move(task),
                       .scaling = scaling,
                       .failure = failure,
                       .logs = &logs,
                       .when_over = [&] { ++over; }});
        end = driver.run();
    }).join();
    REQUIRE(end);
    CHECK(end->result == "17\n");
    CHECK(over == 1);
    CHECK(of_rank_1 == std::vector<std::string>{"1 in 1", "1 in 2"});
    const std::string log = test::read(directory.path() / "logs/rank-1.log");
    CHECK(test::contains(log, "1 in 1\n"));
    CHECK(test::contains(log, "attempt 2"));
    CHECK(log.ends_with("1 in 2\n"));
}

TEST_CASE("Driver.a_signal_preempts_the_run_and_is_mains_again" * doctest::timeout(60)) {
    const test::Directory directory("driver-signal");
    const ScalingConfig scaling{.num_workers = 2};
    FailureConfig failure = without_reports();
    failure.preemption_grace_s = 0.1; // the script does not save
    Task task = task_in(directory.path(), "exec sleep 1000");
    task.prepare = [prepare = std::move(task.prepare)](const LaunchRequest& start) {
        ::kill(::getpid(), SIGTERM);
        return prepare(start);
    };
    const auto of_main = [](int) {};
    ::signal(SIGTERM, of_main);
    {
        Driver driver({.task = std::move(task), .scaling = scaling, .failure = failure});
        const RunEnd end = driver.run();
        REQUIRE(end.failure);
        CHECK(end.failure->code.text() == "RT-T3");
    }
    CHECK((::signal(SIGTERM, SIG_DFL) == +of_main));
}
