// SPDX-License-Identifier: Apache-2.0
// main() runs in the driver and in every process that the driver starts: what it reads and makes
// must be the same there.
#include "support/programs.hpp"

#include <doctest/doctest.h>

#include <set>
#include <sstream>

namespace main_test {

using test::contains;
using test::count;
using test::Ended;

namespace {

/// `script` is a line for the shell, in which PROGRAM stands for main_calls.
Ended shell(std::string script, const std::string& variant, const test::Directory& storage) {
    const std::string command =
        std::string("timeout 100 " RTRAIN_MAIN_CALLS " ") + variant + " " + storage.path().string();
    script.replace(script.find("PROGRAM"), 7, command);
    return test::run("{ " + script + "\n}");
}

Ended alone(const std::string& variant, const test::Directory& storage) {
    return shell("PROGRAM", variant, storage);
}

bool all_say(const Ended& ended, const std::string& text) {
    return ended.status == 0 && contains(ended.output, "RANK 0 [" + text + "]") &&
           contains(ended.output, "RANK 1 [" + text + "]");
}

std::set<std::string> processes_in(const std::string& output) {
    std::set<std::string> processes;
    std::istringstream words(output);
    for (std::string word; words >> word;) {
        if (word == "PID" && words >> word) {
            processes.insert(word);
        }
    }
    return processes;
}

} // namespace

TEST_CASE("Main.ranks_read_the_file_that_main_has_read") {
    const std::pair<const char*, const char*> ways[] = {
        {"reads-all", "one|two|"},       {"reads-line", "one then two"},
        {"reads-unsynchronised", "one"}, {"reads-five-bytes", "one|t"},
        {"reads-and-rewinds", "one"},    {"reads-config", "one"}};
    for (const auto& [how, expected] : ways) {
        CAPTURE(how);
        const test::Directory storage("input-file");
        test::write(storage.path() / "input", "one\ntwo\n");
        const auto ended = shell("PROGRAM < " + (storage.path() / "input").string(), how, storage);
        CAPTURE(ended.output);
        CHECK(all_say(ended, expected));
    }
}

TEST_CASE("Main.ranks_read_from_where_main_began") {
    const test::Directory storage("input-offset");
    test::write(storage.path() / "input", "zero\none\ntwo\n");
    const auto ended = shell("{ read first; PROGRAM; } < " + (storage.path() / "input").string(),
                             "reads-all", storage);
    CAPTURE(ended.output);
    CHECK(all_say(ended, "one|two|"));
}

TEST_CASE("Main.ranks_read_the_pipe_that_was_complete_when_main_began") {
    const std::pair<const char*, const char*> ways[] = {
        {"reads-all", "one|two|"}, {"reads-line", "one then two"}, {"reads-five-bytes", "one|t"}};
    for (const auto& [how, expected] : ways) {
        CAPTURE(how);
        const test::Directory storage("input-pipe");
        const std::string fifo = (storage.path() / "fifo").string();
        // The reader that opens it first lets the writer end before the program begins.
        const auto ended = shell("mkfifo " + fifo + "; exec 8<>" + fifo +
                                     "; printf 'one\\ntwo\\n' >&8;"
                                     " exec 9<" +
                                     fifo + "; exec 8>&-; PROGRAM <&9 9<&-",
                                 how, storage);
        CAPTURE(ended.output);
        CHECK(all_say(ended, expected));
    }
}

TEST_CASE("Main.a_pipe_that_cannot_be_read_again_is_refused_before_ranks_start") {
    for (const std::string how : {"reads-line", "reads-five-bytes", "reads-unsynchronised"}) {
        CAPTURE(how);
        const test::Directory storage("input-open");
        const std::string fifo = (storage.path() / "fifo").string();
        // This shell could still write into it.
        const auto ended = shell("mkfifo " + fifo + "; exec 8<>" + fifo +
                                     "; printf 'one\\ntwo\\n' >&8; PROGRAM <&8",
                                 how, storage);
        CAPTURE(ended.output);
        CHECK(ended.status == 1);
        CHECK(count(ended.output, "ERROR main() has read from standard input") == 1);
        CHECK(contains(ended.output, "RT-C24"));
        CHECK(!contains(ended.output, "RANK"));
    }
}

TEST_CASE("Main.what_main_leaves_is_read_by_rank_0") {
    const test::Directory storage("input-left");
    const auto ended = shell("printf 'one\\ntwo\\n' | PROGRAM", "reads-nothing", storage);
    CAPTURE(ended.output);
    CHECK(ended.status == 0);
    CHECK(contains(ended.output, "RANK 0 [ then one]"));
    CHECK(contains(ended.output, "RANK 1 [ then ]"));
}

TEST_CASE("Main.no_input_is_the_same_for_all") {
    for (const std::string from : {"< /dev/null", "<&-"}) {
        CAPTURE(from);
        const test::Directory storage("input-none");
        const auto ended = shell("PROGRAM " + from, "reads-all", storage);
        CAPTURE(ended.output);
        CHECK(all_say(ended, ""));
    }
}

TEST_CASE("Main.every_call_of_fit_has_the_input_read_so_far") {
    const test::Directory storage("input-twice");
    test::write(storage.path() / "input", "one\ntwo\n");
    const auto ended =
        shell("PROGRAM < " + (storage.path() / "input").string(), "reads-twice", storage);
    CAPTURE(ended.output);
    CHECK(all_say(ended, "one"));
    CHECK(all_say(ended, "onetwo"));
}

TEST_CASE("Main.the_helper_that_validates_reads_the_same") {
    const test::Directory storage("input-helper");
    test::write(storage.path() / "input", "one\ntwo\n");
    const std::string file = (storage.path() / "input").string();
    const auto driven = shell("PROGRAM < " + file, "reads-and-validates", storage);
    CAPTURE(driven.output);
    CHECK(contains(driven.output, "VALIDATED \"one\""));
}

TEST_CASE("Main.configurations_that_differ_are_refused") {
    const test::Directory storage("config");
    const auto driven = alone("other-config", storage);
    CAPTURE(driven.output);
    CHECK(driven.status == 1);
    CHECK(count(driven.output, "ERROR ") == 1);
    CHECK(contains(driven.output, "RT-C25"));
    CHECK(contains(driven.output, "\"process\" is "));
    CHECK(!contains(driven.output, "RANK"));
    // Under mpirun, rank 0 alone has standard input.
    const test::Directory other("config-mpirun");
    test::write(other.path() / "input", "one\n");
    const auto launched =
        test::run_on(2, RTRAIN_MAIN_CALLS " reads-config " + other.path().string() + " < " +
                            (other.path() / "input").string());
    CAPTURE(launched.output);
    CHECK(launched.status == 1);
    CHECK(contains(launched.output, "rank 1 of 2: TrainerOptions::config differs from rank 0's: "
                                    "\"text\" is \"\" instead of \"one\""));
    CHECK(contains(launched.output, "RT-C25"));
}

TEST_CASE("Main.a_restored_run_keeps_its_ranks_and_its_checkpoints") {
    const test::Directory storage("restored");
    const auto made = alone("made", storage);
    CAPTURE(made.output);
    REQUIRE(made.status == 0);
    const auto restored = alone("restored", storage);
    CAPTURE(restored.output);
    CHECK(contains(restored.output, "SIZE 3 KEPT 1"));
    // And what it has left is as complete.
    const auto again = alone("restored", storage);
    CAPTURE(again.output);
    CHECK(contains(again.output, "SIZE 3 KEPT 1"));
}

TEST_CASE("Main.fit_inside_of_fit_is_refused") {
    for (const bool driver : {true, false}) {
        const test::Directory storage(driver ? "nested" : "nested-mpirun");
        const std::string command = RTRAIN_MAIN_CALLS " fit-in-fit " + storage.path().string();
        const auto ended = driver ? alone("fit-in-fit", storage) : test::run_on(2, command);
        CAPTURE(ended.output);
        CHECK(ended.status == 1);
        CHECK(contains(ended.output, "RT-C23"));
        CHECK(contains(ended.output, "inside a training or validation function"));
        CHECK(!contains(ended.output, "another process trains"));
    }
}

TEST_CASE("Main.an_exception_that_speaks_of_a_death_is_none") {
    const std::pair<const char*, const char*> variants[] = {
        {"says-it-died", "rank 1 of 2: the process died"},
        {"says-another-died", "rank 1 of 2: rank 0 died [RT-X9]"}};
    for (const auto& [variant, text] : variants) {
        for (const bool driver : {true, false}) {
            const test::Directory storage(driver ? "died" : "died-mpirun");
            const std::string command =
                std::string(RTRAIN_MAIN_CALLS " ") + variant + ' ' + storage.path().string();
            const auto ended = driver ? alone(variant, storage) : test::run_on(2, command);
            CAPTURE(ended.output);
            CHECK(ended.status == 0);
            CHECK(contains(ended.output, text));
            CHECK(contains(ended.output, "restart 1 of 1"));
            CHECK(processes_in(ended.output).size() == 2); // those that have thrown
            CHECK(contains(ended.output, "DONE"));
        }
    }
}

TEST_CASE("Main.ranks_that_join_end_with_their_driver") {
    const test::Directory storage("joins");
    // This mpirun does not notice that its driver has died.
    const std::string script = R"sh(
        printf '#!/bin/sh\nexec setsid --wait "$RTRAIN_TEST_MPIRUN" "$@"\n' > mpirun
        chmod +x mpirun
        PATH=$PWD:$PATH "$RTRAIN_TEST_PROGRAM" joins-slowly r > out 2>&1 &
        driver=$!
        for i in $(seq 600); do [ "$(grep -c PID out)" = 2 ] && break; sleep 0.1; done
        mpirun=$(pgrep -P $(pgrep -P $driver))
        kill -KILL $driver
        for i in $(seq 100); do
            left=$(for pid in $(grep -o 'PID [0-9]*' out | cut -c5-); do
                       ps -o stat= -p $pid | grep -v Z; done)
            [ -z "$left" ] && break
            sleep 0.1
        done
        echo "STARTED:$(grep -c PID out) LEFT:$left."
        kill -KILL $mpirun
    )sh";
    const auto ended =
        test::run("{ cd " + storage.path().string() +
                  "; RTRAIN_TEST_MPIRUN=" RTRAIN_MPIRUN "; RTRAIN_TEST_PROGRAM=" RTRAIN_MAIN_CALLS
                  "; export RTRAIN_TEST_MPIRUN RTRAIN_TEST_PROGRAM;" +
                  script + "}");
    CAPTURE(ended.output);
    CHECK(contains(ended.output, "STARTED:2 LEFT:."));
}

TEST_CASE("Main.models_that_differ_are_compared_part_by_part") {
    const test::Directory storage("unlike");
    const auto ended = alone("unlike-models", storage);
    CAPTURE(ended.output);
    CHECK(ended.status == 1);
    CHECK(contains(ended.output,
                   "\n  rank 1 of 2: the model differs from that of rank 0: it has 4 parameters, "
                   "rank 0's has 2; the first that differs is `1.weight Float[2, 2]` against "
                   "`none`; prepare the same model"));
    CHECK(!contains(ended.output, "rank 0, 1 of 2: rank"));
}

} // namespace main_test
