// SPDX-License-Identifier: Apache-2.0
// Both launches, on real processes: a program started alone, and the same under mpirun.
#include "support/programs.hpp"

#include <doctest/doctest.h>

#include <boost/json/parse.hpp>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <set>
#include <sstream>
#include <string>
#include <utility>

using namespace rtrain;
using test::contains;
using test::count;
using test::Ended;
using test::no_process_is_left;
using test::run;

namespace {

Ended alone(const std::string& variant, const test::Directory& storage) {
    return run(std::string("timeout 60 " RTRAIN_SCENARIO " ") + variant + " " +
               storage.path().string());
}
/// The same on one rank, where there is no mpirun.
Ended alone_on_one_rank(const std::string& variant, const test::Directory& storage,
                        const std::string& limited = "/usr/bin/timeout 60") {
    return run(limited + " /usr/bin/env PATH=/nowhere RTRAIN_TEST_WORKERS=1 " RTRAIN_SCENARIO " " +
               variant + " " + storage.path().string());
}
/// What follows a word in its line, the rank's name left out.
std::string line_with(const std::string& word, const std::string& text) {
    const auto at = text.find(word);
    REQUIRE(at != std::string::npos);
    return text.substr(at, text.find('\n', at) - at);
}
/// How many tensors a safetensors file holds, and the sum of one of float32.
std::pair<std::size_t, double> count_and_sum(const std::string& file, const std::string& name) {
    const std::string bytes = test::read(file);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    auto header = boost::json::parse(bytes.substr(sizeof length, length)).as_object();
    header.erase("__metadata__");
    const auto& offsets = header.at(name).at("data_offsets");
    const auto begin = sizeof length + length;
    double sum = 0;
    for (auto at = offsets.at(0).to_number<std::size_t>();
         at < offsets.at(1).to_number<std::size_t>(); at += sizeof(float)) {
        float value = 0;
        std::memcpy(&value, bytes.data() + begin + at, sizeof value);
        sum += static_cast<double>(value);
    }
    return {header.size(), sum};
}
/// The processes that have said "PID n".
std::set<std::string> processes_in(const std::string& text) {
    std::set<std::string> processes;
    for (auto at = text.find("PID "); at != std::string::npos; at = text.find("PID ", at + 1)) {
        processes.insert(text.substr(at, text.find('\n', at) - at));
    }
    return processes;
}
Ended under_mpirun(int ranks, const std::string& variant, const test::Directory& storage) {
    return test::run_on(ranks, RTRAIN_SCENARIO " " + variant + " " + storage.path().string());
}

} // namespace

TEST_CASE("Launch.several_fits_in_one_program") {
    const test::Directory storage("two-fits");
    const auto driven = alone("two-fits", storage);
    CAPTURE(driven.output);
    CHECK(driven.status == 0);
    CHECK(count(driven.output, "RESULT 3 1 5 2") == 1);
    for (const int ranks : {1, 2, 3, 4}) {
        const test::Directory other("two-fits-" + std::to_string(ranks));
        const auto launched = under_mpirun(ranks, "two-fits", other);
        CAPTURE(launched.output);
        CHECK(launched.status == 0);
        CHECK(count(launched.output, "RESULT 3 1 5 2") == ranks);
    }
}

TEST_CASE("Reshard.any_ranks_load_what_any_ranks_saved") {
    for (const int saving : {1, 2, 3, 4}) {
        const test::Directory storage("reshard-" + std::to_string(saving));
        for (const int loading : {saving, 1, 2, 3, 4}) {
            const auto launched = under_mpirun(loading, "reshard", storage);
            CAPTURE(saving);
            CAPTURE(loading);
            CAPTURE(launched.output);
            CHECK(launched.status == 0);
        }
    }
}

TEST_CASE("CheckpointTool.lists_verifies_and_merges") {
    const test::Directory storage("tool");
    REQUIRE(under_mpirun(3, "reshard", storage).status == 0);
    const auto checkpoint = storage.path() / "r/checkpoint_000000";
    const auto tool = [&](const std::string& arguments) {
        return run(RTRAIN_CHECKPOINT_TOOL " " + arguments);
    };
    const auto listed = tool("list " + checkpoint.string());
    CAPTURE(listed.output);
    CHECK(listed.status == 0);
    CHECK(contains(listed.output, "written by 3 ranks"));
    CHECK(contains(listed.output, "own/table  F32 [37, 11]  in 3 pieces"));
    CHECK(contains(listed.output, "shard-00002-of-00003.safetensors"));
    CHECK(contains(tool("verify " + checkpoint.string()).output, "is valid"));

    const auto merged = (storage.path() / "merged.safetensors").string();
    CHECK(tool("merge " + checkpoint.string() + " " + merged).status == 0);
    const auto [tensors, sum_of_table] = count_and_sum(merged, "own/table");
    const auto python =
        run(RTRAIN_TEST_PYTHON " -c \"import sys; from safetensors.numpy import load_file; "
                               "t = load_file(sys.argv[1]); a = t['own/table']; "
                               "print(len(t), a.shape, a.dtype, '%.6f' % a.astype('f8').sum())\" " +
            merged);
    std::array<char, 64> sum{};
    std::snprintf(sum.data(), sum.size(), "%.6f", sum_of_table);
    CHECK(python.output == std::to_string(tensors) + " (37, 11) float32 " + sum.data() + "\n");

    const auto shard = checkpoint / "shard-00001-of-00003.safetensors";
    std::string bytes = test::read(shard);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    test::write(shard, bytes);
    const auto other = (storage.path() / "other.safetensors").string();
    for (const auto& arguments :
         {"verify " + checkpoint.string(), "merge " + checkpoint.string() + " " + other}) {
        const auto damaged = tool(arguments);
        CHECK(damaged.status == 1);
        CHECK(contains(damaged.output, "RT-K2"));
        CHECK(contains(damaged.output, "shard-00001-of-00003.safetensors"));
    }
    CHECK(!std::filesystem::exists(other));
    CHECK(tool("verify").status == 2);
}

TEST_CASE("Launch.an_error_on_a_rank_reaches_the_caller") {
    const test::Directory storage("caught");
    const auto driven = alone("caught", storage);
    CAPTURE(driven.output);
    CHECK(driven.status == 0);
    CHECK(count(driven.output, "CAUGHT 1 bad luck") == 1);
    CHECK(contains(driven.output, "RESULT 2"));
    const test::Directory other("caught-mpirun");
    const auto launched = under_mpirun(3, "caught", other);
    CAPTURE(launched.output);
    CHECK(launched.status == 0);
    CHECK(count(launched.output, "CAUGHT 1 bad luck") == 3);
    CHECK(count(launched.output, "RESULT 2") == 3);

    const test::Directory third("uncaught");
    const auto failed = alone("uncaught", third);
    CHECK(failed.status == 1);
    CHECK(contains(failed.output, "rank 1 of 2: bad luck"));
    CHECK(contains(failed.output, "RT-T1"));
    CHECK(!contains(failed.output, "mpirun")); // its own complaints would only distract
    CHECK(under_mpirun(2, "uncaught", third).status == 1);
}

TEST_CASE("Launch.an_unset_num_workers_with_use_gpu_is_as_many_ranks_as_the_gpus_carry") {
    const test::Directory storage("launch-all-gpus");
    const auto ended = alone("all-gpus", storage);
    CHECK(ended.status == 0);
    CHECK(count(ended.output, "RANK OF 4") == 4);
}

TEST_CASE("Launch.an_error_that_main_does_not_catch_is_printed_once") {
    const test::Directory storage("escapes");
    for (const auto& ended : {alone("escapes", storage), under_mpirun(2, "escapes", storage)}) {
        CAPTURE(ended.output);
        CHECK(ended.status == 1);
        CHECK(count(ended.output, "bad luck") == 1);
        CHECK(contains(ended.output, "[RT-T1]"));
        for (const char* const noise : {"terminate called", "Process received signal", "[ 0]"}) {
            CHECK(!contains(ended.output, noise));
        }
    }
}

TEST_CASE("Launch.a_rank_that_exits_or_finalizes_mpi_is_named") {
    const test::Directory storage("exits-quietly");
    const auto exits = alone("exits-quietly", storage);
    CAPTURE(exits.output);
    CHECK(exits.status == 1);
    CHECK(contains(exits.output, "rank 1 exited"));
    CHECK(!contains(exits.output, "PID"));
    const test::Directory other("finalizes");
    const auto finalizes = under_mpirun(2, "finalizes", other);
    CAPTURE(finalizes.output);
    CHECK(finalizes.status == 1);
    CHECK(contains(finalizes.output, "MPI_Finalize was called before fit()"));
    CHECK(contains(finalizes.output, "RT-X46"));
    const test::Directory third("finalizes-within");
    const auto within = alone("finalizes-within", third);
    CAPTURE(within.output);
    CHECK(within.status == 1);
    CHECK(contains(within.output, "MPI_Finalize was called within the training function"));
    CHECK(contains(within.output, "RT-X47"));
}

TEST_CASE("Launch.all_processes_make_the_same_calls") {
    const test::Directory storage("calls");
    const auto driven = alone("only-the-driver-fits", storage);
    CAPTURE(driven.output);
    CHECK(driven.status == 1);
    CHECK(contains(driven.output, "without reaching fit() call number 1"));
    CHECK(contains(driven.output, "[RT-L3]"));
    CHECK(no_process_is_left(storage));
}

TEST_CASE("Launch.output_has_the_rank_in_front") {
    const test::Directory storage("output");
    const auto driven = alone("output", storage);
    CHECK(driven.status == 0);
    for (const std::string rank : {"0", "1"}) {
        CHECK(count(driven.output, "[rank " + rank + "] hello from " + rank + "\n") == 1);
        CHECK(count(driven.output, "[rank " + rank + "] and again\n") == 1);
        CHECK(count(driven.output, "[rank " + rank + "] error from " + rank + "\n") == 1);
        CHECK(count(driven.output, "[rank " + rank + "] " + std::string(20000, 'x') + "\n") == 1);
    }
}

TEST_CASE("Launch.a_killed_rank_is_named") {
    const test::Directory storage("killed");
    const auto begin = std::chrono::steady_clock::now();
    const auto driven = alone("killed", storage);
    CAPTURE(driven.output);
    CHECK(driven.status == 1);
    CHECK(contains(driven.output, "rank 1 was killed by signal 9"));
    CHECK(contains(driven.output, "RT-L2"));
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
    CHECK(no_process_is_left(storage));
    // The same command goes on.
    const auto second = alone("killed", storage);
    CHECK(second.status == 1);
    const auto third = alone("killed", storage);
    CAPTURE(third.output);
    CHECK(contains(third.output, "RESULT 6 6"));

    const test::Directory other("exits");
    const auto exits = alone("exits", other);
    CAPTURE(exits.output);
    CHECK(contains(exits.output, "rank 0 ended with exit code 7"));
    CHECK(no_process_is_left(other));
}

TEST_CASE("Launch.failures_are_survived") {
    const test::Directory storage("restarted");
    const auto driven = alone("restarted", storage);
    CAPTURE(driven.output);
    CHECK(driven.status == 0);
    CHECK(contains(driven.output, "restart 1 of 2"));
    CHECK(contains(driven.output, "restart 2 of 2"));
    CHECK(contains(driven.output, "RESULT 6 6")); // each report once
}

TEST_CASE("Launch.a_rank_that_throws_is_restarted_in_its_process") {
    for (const bool driver : {true, false}) {
        const test::Directory storage(driver ? "throws" : "throws-mpirun");
        const auto result = driver ? alone("throws", storage) : under_mpirun(2, "throws", storage);
        CAPTURE(result.output);
        CHECK(result.status == 0);
        CHECK(contains(result.output, "rank 1 of 2: bad luck"));
        CHECK(contains(result.output, "restart 1 of 1"));
        CHECK(contains(result.output, "RESULT 6 6"));
        CHECK(processes_in(result.output).size() == 2);
        CHECK(no_process_is_left(storage));
    }
}

TEST_CASE("Launch.a_function_takes_its_config_as_a_struct") {
    const std::string refused =
        "ERROR the config has \"step\", but (anonymous namespace)::Hyper has no "
        "such member; did you mean \"steps\"? its members are steps, lr "
        "[RT-C167]";
    for (const bool driver : {true, false}) {
        const test::Directory storage(driver ? "typed" : "typed-mpirun");
        const auto ended = driver ? alone("typed", storage) : under_mpirun(2, "typed", storage);
        CAPTURE(ended.output);
        CHECK(ended.status == 0);
        CHECK(count(ended.output, refused) == (driver ? 1 : 2));
        CHECK(contains(ended.output, "restart 1 of 1"));
        CHECK(count(ended.output, "RESULT 4 1") == (driver ? 1 : 2));
    }
    const test::Directory storage("typed-no-mpirun"); // a wrong config starts no ranks
    const auto ended = run("PATH=/nowhere " RTRAIN_SCENARIO " typed " + storage.path().string());
    CAPTURE(ended.output);
    CHECK(contains(ended.output, refused));
    CHECK(contains(ended.output, "RT-L1"));
}

TEST_CASE("Launch.hangs_are_found_and_survived") {
    for (const std::string how : {"stops", "sleeps", "spins", "leaves"}) {
        CAPTURE(how);
        const test::Directory storage(how);
        const auto result = alone(how, storage);
        CAPTURE(result.output);
        CHECK(result.status == 0);
        CHECK(contains(result.output, "restart 1 of 1"));
        CHECK(contains(result.output, "RESULT 6 6"));
        CHECK(processes_in(result.output).size() == 4);
        if (how == "sleeps" || how == "spins") {
            CHECK(contains(result.output, "the ranks hang"));
            CHECK(contains(result.output, "stack of rank 1"));
        }
        CHECK(no_process_is_left(storage));
    }
}

TEST_CASE("Launch.a_run_that_is_to_make_room_loses_no_step") {
    const test::Directory calm("calm");
    const auto undisturbed = alone("trains-fast", calm);
    CAPTURE(undisturbed.output);
    REQUIRE(undisturbed.status == 0);
    const std::string weights = line_with("WEIGHTS", undisturbed.output);
    const auto rows = test::read(calm.path() / "rank1");

    for (const std::string signal : {"USR1", "TERM"}) {
        CAPTURE(signal);
        const test::Directory storage("room-" + signal);
        const std::string program = RTRAIN_SCENARIO " trains " + storage.path().string();
        const auto preempted =
            run(test::signalled(signal, storage.path() / "rank1") + " " + program);
        CAPTURE(preempted.output);
        CHECK(preempted.status == 75);
        CHECK(contains(preempted.output, "RT-T3") == false); // it is no error
        CHECK(no_process_is_left(storage));
        const auto second = alone("trains-fast", storage);
        CAPTURE(second.output);
        CHECK(second.status == 0);
        CHECK(line_with("WEIGHTS", second.output) == weights);
        CHECK(test::read(storage.path() / "rank1") == rows); // each step once
        CHECK(contains(second.output, "RESULT 2 3"));
    }

    // Without a driver, mpirun passes SIGUSR1 on to the ranks.
    const test::Directory storage("room-mpirun");
    const auto preempted = test::run_on(2, RTRAIN_SCENARIO " trains " + storage.path().string(),
                                        test::signalled("USR1", storage.path() / "rank1"));
    CAPTURE(preempted.output);
    CHECK(preempted.status == 75);
    const auto second = under_mpirun(2, "trains-fast", storage);
    CHECK(second.status == 0);
    CHECK(line_with("WEIGHTS", second.output) == weights);
    CHECK(test::read(storage.path() / "rank1") == rows);
}

TEST_CASE("Launch.a_function_that_catches_all_makes_room_nevertheless") {
    const auto check = [](const test::Ended& ended) {
        CAPTURE(ended.output);
        CHECK(ended.status == 75);
        CHECK(test::count(ended.output, "CAUGHT") == 4); // twice on each of two ranks
        CHECK(contains(ended.output,
                       "the training function caught the exception that ends it, twice"));
    };
    const test::Directory storage("clings");
    check(run(test::signalled("TERM", storage.path() / "begun") + " " RTRAIN_SCENARIO " clings " +
              storage.path().string()));
    CHECK(no_process_is_left(storage));
    const test::Directory ranks("clings-mpirun");
    check(test::run_on(2, RTRAIN_SCENARIO " clings " + ranks.path().string(),
                       test::signalled("USR1", ranks.path() / "begun")));
    CHECK(!std::filesystem::exists(ranks.path() / "r" / "error.json"));
}

TEST_CASE("Launch.a_run_is_restored_from_its_directory") {
    const test::Directory storage("restores");
    CHECK(alone("restores", storage).status == 1); // there is no run yet
    REQUIRE(alone("configured", storage).status == 0);
    const test::Directory moved("restores-moved");
    std::filesystem::rename(storage.path() / "r", moved.path() / "r");
    const auto restored = alone("restores", moved);
    CAPTURE(restored.output);
    CHECK(contains(restored.output, "CAN 10"));
    CHECK(contains(restored.output, "RESULT 8 5E-1"));
    CHECK(contains(restored.output, "RT-C18"));
}

TEST_CASE("Launch.children_of_a_rank_are_not_the_rank") {
    const test::Directory driven("forks");
    const test::Directory sole("forks-sole");
    const test::Directory launched("forks-mpirun");
    for (const auto& [result, ranks] :
         {std::pair(alone("forks", driven), 2), std::pair(alone_on_one_rank("forks", sole), 1),
          std::pair(under_mpirun(2, "forks", launched), 2)}) {
        CAPTURE(result.output);
        CHECK(result.status == 0);
        CHECK(count(result.output, "exits 0") == 2 * ranks);
        CHECK(count(result.output, "returns 0") == 2 * ranks);
        CHECK(count(result.output, "throws 1") == 2 * ranks);
        CHECK(count(result.output, "threw: bad luck of a child") == 2 * ranks);
        CHECK(contains(result.output, "RESULT"));
    }
    for (const auto* const storage : {&driven, &sole, &launched}) {
        CHECK(no_process_is_left(*storage));
        CHECK(count(test::read(storage->path() / "r/result.json"), "\n") == 2); // reported once
    }
}

TEST_CASE("Launch.a_reader_that_pauses_loses_nothing") {
    for (const int ranks : {1, 2}) { // without mpirun, and with its buffers
        for (const int pause_s : {8, 0}) {
            CAPTURE(ranks);
            CAPTURE(pause_s);
            const test::Directory storage("chatters-" + std::to_string(ranks));
            const auto ended =
                run("RTRAIN_TEST_WORKERS=" + std::to_string(ranks) +
                    " bash -o pipefail -c 'timeout 60 " RTRAIN_SCENARIO " chatters " +
                    storage.path().string() + " | { sleep " + std::to_string(pause_s) + "; cat >" +
                    storage.path().string() + "/printed; }'");
            CAPTURE(ended.output);
            CHECK(ended.status == 0);
            CHECK_FALSE(contains(ended.output, "RT-L14"));
            std::string expected;
            const std::string printed = test::read(storage.path() / "printed");
            for (int rank = 0; rank < ranks; ++rank) {
                const std::string line =
                    "[rank " + std::to_string(rank) + "] " + std::string(1000, 'x') + "\n";
                CHECK(count(printed, line) == 400);
                expected += line;
            }
            CHECK(printed.size() == 400 * expected.size());
        }
    }
}

TEST_CASE("Launch.what_the_driver_says_waits_for_a_reader_that_pauses") {
    const test::Directory storage("paused");
    const auto ended =
        run("bash -o pipefail -c '{ head -c 65536 /dev/zero | tr \"\\0\" . >&2; " // full
            "exec timeout 60 " RTRAIN_SCENARIO " two-fits " +
            storage.path().string() + "; } 2>&1 >/dev/null | { sleep 8; cat; }'");
    CHECK(ended.status == 0);
    CHECK(contains(ended.output, "run second has finished"));
}

TEST_CASE("Launch.closed_standard_streams_are_no_sockets") {
    const test::Directory storage("closed");
    for (const std::string closed : {"1>&-", "2>&-", "0<&- 1>&- 2>&-"}) {
        CAPTURE(closed);
        const auto ended =
            run("RTRAIN_TEST_LIVE=0 sh -c 'exec timeout 60 " RTRAIN_SCENARIO " two-fits " +
                (storage.path() / std::to_string(closed.size())).string() + " " + closed + "'");
        CHECK(ended.status == 0);
    }
    CHECK(no_process_is_left(storage));
}

TEST_CASE("Launch.what_each_start_meets_is_met_once") {
    const test::Directory storage("file-limit");
    // 512 kB: what training writes is larger.
    const auto ended =
        run("bash -c 'ulimit -f 512; RTRAIN_TEST_WORKERS=1 timeout 60 " RTRAIN_SCENARIO " large " +
            storage.path().string() + "'");
    CAPTURE(ended.output);
    CHECK(ended.status == 1);
    CHECK(contains(ended.output, "File too large"));
    CHECK(contains(ended.output, "raise `ulimit -f`"));
    CHECK(contains(ended.output, "RT-S45"));
    CHECK_FALSE(contains(ended.output, "restart 1"));
    CHECK_FALSE(contains(ended.output, "signal 25"));
    CHECK(no_process_is_left(storage));
    // A machine whose only network interface is down, or which has none.
    const test::Directory lonely("no-network");
    const auto isolated =
        run("unshare --net --map-root-user timeout 60 " RTRAIN_SCENARIO " two-fits " +
            lonely.path().string());
    CAPTURE(isolated.output);
    if (contains(isolated.output, "unshare: ")) {
        MESSAGE("skipped: no network namespace for this user");
    } else {
        CHECK(isolated.status == 1);
        CHECK(contains(isolated.output, "RT-L46"));
        CHECK(contains(isolated.output, "ip link set lo up"));
        CHECK_FALSE(contains(isolated.output, "restart 1"));
    }
}

TEST_CASE("Launch.ranks_of_one_machine_listen_on_no_network") {
    for (const char* const workers : {"1", "2"}) {
        CAPTURE(workers);
        const test::Directory storage(std::string("listening-") + workers);
        const auto ended =
            run(std::string("RTRAIN_TEST_WORKERS=") + workers +
                " timeout 60 " RTRAIN_SCENARIO " listens " + storage.path().string());
        CAPTURE(ended.output);
        CHECK(ended.status == 0);
        CHECK(count(ended.output, "LISTENS 0\n") == std::atoi(workers));
    }
}

TEST_CASE("Launch.wrong_number_of_ranks") {
    const test::Directory storage("wrong-size");
    for (const auto& result :
         {alone("wrong-size", storage), under_mpirun(2, "wrong-size", storage)}) {
        CAPTURE(result.output);
        CHECK(result.status == 1);
        CHECK(contains(result.output, "num_workers is 7, but 2 ranks were started"));
    }
}

TEST_CASE("Launch.signals_end_everything") {
    for (const char* const signal : {"TERM", "INT", "KILL"}) {
        CAPTURE(signal);
        const test::Directory storage(std::string("slow-") + signal);
        const auto checkpoint = storage.path() / "r/checkpoint_000000";
        const auto result = run(test::signalled(signal, checkpoint) + " " RTRAIN_SCENARIO " slow " +
                                storage.path().string());
        CHECK(result.status != 0);
        CHECK(no_process_is_left(storage));
        CHECK(std::filesystem::exists(checkpoint));
    }
}

TEST_CASE("Launch.a_rank_that_is_alone_needs_no_mpirun") {
    const test::Directory output("sole-output");
    const auto prints = alone_on_one_rank("output", output);
    CAPTURE(prints.output);
    CHECK(prints.status == 0);
    for (const std::string& line : {std::string("hello from 0"), std::string("and again"),
                                    std::string("error from 0"), std::string(20000, 'x')}) {
        CHECK(count(prints.output, "[rank 0] " + line + "\n") == 1);
    }

    const test::Directory several("sole-two-fits");
    CHECK(contains(alone_on_one_rank("two-fits", several).output, "RESULT 3 1 5 2"));

    const test::Directory killed("sole-killed");
    const auto dies = alone_on_one_rank("killed", killed);
    CAPTURE(dies.output);
    CHECK(dies.status == 1);
    CHECK(contains(dies.output, "rank 0 was killed by signal 9 (Killed)"));
    CHECK(contains(dies.output, "RT-L2"));
    const test::Directory exits("sole-exits");
    CHECK(contains(alone_on_one_rank("exits", exits).output, "rank 0 ended with exit code 7"));

    for (const std::string how : {"restarted", "throws", "stops", "spins", "leaves"}) {
        CAPTURE(how);
        const test::Directory storage("sole-" + how);
        const auto result = alone_on_one_rank(how, storage);
        CAPTURE(result.output);
        CHECK(result.status == 0);
        CHECK(contains(result.output, "restart 1 of "));
        CHECK(contains(result.output, "RESULT 6 6"));
        CHECK(no_process_is_left(storage));
    }
    for (const char* const signal : {"TERM", "INT", "KILL"}) {
        CAPTURE(signal);
        const test::Directory storage(std::string("sole-slow-") + signal);
        const auto checkpoint = storage.path() / "r/checkpoint_000000";
        CHECK(alone_on_one_rank("slow", storage, test::signalled(signal, checkpoint)).status != 0);
        CHECK(no_process_is_left(storage));
        CHECK(std::filesystem::exists(checkpoint));
    }
}

TEST_CASE("Launch.missing_mpirun_is_explained") {
    const test::Directory storage("no-mpirun");
    const auto result = run("PATH=/nowhere " RTRAIN_SCENARIO " slow " + storage.path().string());
    CHECK(result.status == 1);
    CHECK(contains(result.output, "mpirun is not on PATH"));
    CHECK(contains(result.output, "RT-L1"));
}
