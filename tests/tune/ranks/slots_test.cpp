// SPDX-License-Identifier: Apache-2.0
// Searches on the ranks of one mpirun: the same results as alone, on all ranks; deaths; nothing is
// left.
#include "support/programs.hpp"

#include <rtrain/base/json.hpp>
#include <rtrain/tune/ranks/slot_places.hpp>
#include <rtrain/tune/ranks/slots.hpp>
#include <rtrain/tune/ranks/trial_worker.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <map>
#include <set>
#include <sstream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

using namespace rtrain;
using test::contains;
using test::count;
using test::Directory;
using test::Ended;

namespace {

std::string command(const std::string& variant, int ranks_of_trial, const Directory& storage) {
    return RTRAIN_SLOTS " " + variant + " " + std::to_string(ranks_of_trial) + " " +
           storage.path().string();
}

Ended searched(int ranks, const std::string& variant, int ranks_of_trial,
               const Directory& storage) {
    const std::string words = command(variant, ranks_of_trial, storage);
    return ranks == 0 ? test::run("timeout 120 " + words)
                      : test::run_on(ranks, words, "timeout 120");
}

/// What fit() gave a rank.
std::string results(const Directory& storage, int rank = 0) {
    return test::read(storage.path() / ("results-" + std::to_string(rank)));
}

/// How often each trial was called.
std::map<std::string, int> calls(const Directory& storage) {
    std::map<std::string, int> calls;
    std::istringstream lines(test::read(storage.path() / "calls"));
    std::string trial;
    for (int rank = 0; lines >> trial >> rank;) {
        ++calls[trial];
    }
    return calls;
}

/// No process, and no directory or socket of one.
bool nothing_is_left(const Directory& storage) {
    const std::string name = storage.path().filename().string();
    for (int tries = 0; tries < 100; ++tries) {
        if (test::run("pgrep -f '[s]lots .*" + name + "$'").output.empty()) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
}

} // namespace

TEST_CASE("Slots.ranks_stand_for_cores_of_their_machine") {
    const tune::Machine machine{.cpus = 8, .gpus = 2};
    const std::vector<tune::SlotRank> ranks{{0, "a", machine}, {1, "b", machine},
                                            {2, "a", machine}, {3, "b", machine},
                                            {4, "a", machine}, {5, "a", machine}};
    const auto slots = [&](tune::Resources each, int most = 0) {
        std::string text;
        for (const tune::Place& place : tune::slot_places(ranks, each, most)) {
            text += std::to_string(place.slot);
            for (const int gpu : place.gpus) {
                text += "g" + std::to_string(gpu);
            }
            text += ' ';
        }
        return text;
    };
    CHECK(slots({.cpus = 1}) == "0 1 2 3 4 5 ");
    CHECK(slots({.cpus = 1}, 4) == "0 1 2 3 ");
    CHECK(slots({.cpus = 0.5}) == "0 1 2 3 4 5 "); // a rank runs one trial at a time
    CHECK(slots({.cpus = 2}) == "0 1 4 ");
    CHECK(slots({.cpus = 3}) == "0 1 "); // b has two ranks, and gives both
    CHECK(slots({.cpus = 1, .gpus = 1}) == "0g0 1g0 2g1 3g1 ");
    CHECK(slots({.cpus = 1, .gpus = 0.5}) == "0g0 1g0 2g0 3g0 4g1 5g1 ");
    CHECK(slots({.cpus = 2, .gpus = 2}) == "0g0g1 1g0g1 ");
    CHECK_THROWS_AS((void)slots({.cpus = 9}), ConfigError);
    CHECK_THROWS_AS((void)slots({.cpus = 1, .gpus = 3}), ConfigError);
}

TEST_CASE("Slots.functions_and_classes_give_the_same_results_as_alone") {
    for (const std::string variant : {"function", "class"}) {
        const Directory alone("slots-" + variant + "-0");
        REQUIRE(searched(0, variant, 1, alone).status == 0);
        const std::string expected = results(alone);
        CHECK(count(expected, "\n") == 12);
        CHECK(count(expected, "ERROR") == (variant == "function" ? 1 : 0));
        for (const int ranks : {1, 2, 3, 4}) {
            const Directory storage("slots-" + variant + "-" + std::to_string(ranks));
            const auto ended = searched(ranks, variant, 1, storage);
            CAPTURE(ended.output);
            CAPTURE(ranks);
            CHECK(ended.status == 0);
            CHECK(count(ended.output, "Trials: 12") == 1); // rank 0 shows the table, nobody else
            for (int rank = 0; rank < ranks; ++rank) {
                CHECK(results(storage, rank) == expected);
            }
            CHECK(nothing_is_left(storage));
        }
    }
}

TEST_CASE("Slots.every_rank_runs_trials") {
    const Directory storage("slots-every");
    CHECK(searched(4, "slow", 1, storage).status == 0);
    std::set<int> ranks;
    std::istringstream lines(test::read(storage.path() / "calls"));
    std::string trial;
    for (int rank = 0; lines >> trial >> rank;) {
        ranks.insert(rank);
    }
    CHECK(ranks == std::set<int>{0, 1, 2, 3});
}

TEST_CASE("Slots.verdicts_reach_the_slots") {
    const Directory storage("slots-asha");
    CHECK(searched(3, "asha", 1, storage).status == 0);
    // Asha ends at its first rung, behind one report, whoever is worst of those before it.
    int early = 0;
    std::istringstream lines(results(storage));
    for (std::string line; std::getline(lines, line);) {
        early += static_cast<int>(contains(line, "TERMINATED") && count(line, " ") < 3 + 3 * 4 - 1);
    }
    CHECK(early > 0);
}

TEST_CASE("Slots.an_error_of_the_search_reaches_all_ranks") {
    const Directory storage("slots-metric");
    const auto ended = searched(3, "unknown-metric", 1, storage);
    CAPTURE(ended.output);
    CHECK(ended.status == 0);
    for (int rank = 0; rank < 3; ++rank) {
        CHECK(contains(results(storage, rank), "ERROR"));
        CHECK(contains(results(storage, rank), "RT-U101"));
    }
}

TEST_CASE("Slots.a_state_for_which_there_is_no_room_fails_its_trial_only") {
    const Directory storage("slots-no-room");
    CHECK(searched(2, "no-room", 1, storage).status == 0);
    const std::string all = results(storage);
    CHECK(results(storage, 1) == all);
    std::istringstream lines(test::read(storage.path() / "calls"));
    std::string trial;
    int on_1 = 0;
    for (int rank = 0; lines >> trial >> rank;) { // the slot continues after each of them
        on_1 += rank;
        const bool fails = rank == 1 || trial == "00003";
        CHECK(contains(all, trial + (fails ? " ERROR" : " TERMINATED")));
    }
    CHECK(on_1 > 1);
}

TEST_CASE("Slots.a_rank_that_cannot_reach_rank_0_says_so") {
    std::string address;
    {
        const tune::Slots gone(true); // nobody listens there any more
        address = gone.address();
    }
    const auto join = [&] { const tune::TrialWorker agent(address, 1, {}); };
    CHECK(test::code_of(join) == "RT-U114");
    CHECK(contains(test::message_of(join), "rank 0 cannot be reached at 127.0.0.1:"));
}

TEST_CASE("Slots.trials_of_trainers_have_ranks_of_their_own") {
    for (const int each : {1, 2}) {
        const Directory alone("slots-trainer-0-" + std::to_string(each));
        REQUIRE(searched(0, "trainer", each, alone).status == 0);
        const std::string expected = results(alone);
        CHECK(count(expected, "TERMINATED") == 3);
        for (const int ranks : {2, 4}) {
            const Directory storage("slots-trainer-" + std::to_string(ranks) +
                                    std::to_string(each));
            const auto ended = searched(ranks, "trainer", each, storage);
            CAPTURE(ended.output);
            CHECK(ended.status == 0);
            for (int rank = 0; rank < ranks; ++rank) {
                CHECK(results(storage, rank) == expected);
            }
            CHECK(nothing_is_left(storage));
        }
    }
}

TEST_CASE("Slots.the_ranks_train_together_before_and_after_a_search") {
    const Directory storage("slots-between");
    const auto ended = searched(2, "between", 1, storage);
    CAPTURE(ended.output);
    CHECK(ended.status == 0);
    CHECK(count(results(storage, 1), "TERMINATED") == 3);
    CHECK(results(storage, 1) == results(storage, 0));
}

TEST_CASE("Slots.a_trials_death_leaves_the_others") {
    const Directory storage("slots-die");
    const auto ended = searched(2, "die", 1, storage);
    CAPTURE(ended.output);
    CHECK(ended.status == 0);
    for (int rank = 0; rank < 2; ++rank) {
        CHECK(contains(results(storage, rank), "00000 TERMINATED"));
        CHECK(contains(results(storage, rank), "00001 ERROR"));
        CHECK(contains(results(storage, rank), "00002 TERMINATED"));
    }
    CHECK(nothing_is_left(storage));
}

namespace {

/// Trials that the search knows to have ended.
std::set<std::string> ended_trials(const Directory& storage) {
    std::set<std::string> ended;
    std::istringstream events(test::read(storage.path() / "search" / "tuner_events.jsonl"));
    for (std::string line; std::getline(events, line);) {
        const auto event = json::parse(line).as_object();
        if (event.at("op") == "returned") {
            ended.insert(std::string(event.at("trial").as_string()));
        }
    }
    return ended;
}

/// Kills a process of the search at its n-th call of what is tuned, and starts it again.
void kill_and_go_on(const std::string& variant, int trials, int at_call,
                    const std::string& expected, const std::string& victim) {
    const Directory storage("slots-" + variant + "-" + victim);
    test::write(storage.path() / "calls", "");
    std::jthread killer([&](const std::stop_token& search_has_ended) {
        while (!search_has_ended.stop_requested()) {
            if (count(test::read(storage.path() / "calls"), "\n") >= at_call) {
                ::kill(std::stoi(test::read(storage.path() / victim)), SIGKILL);
                return;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
    });
    const auto killed = searched(3, variant, 1, storage);
    killer = {};
    CAPTURE(victim);
    CAPTURE(killed.output);
    CHECK(killed.status != 0);
    CHECK(nothing_is_left(storage));
    const auto before = calls(storage);
    const auto ended = ended_trials(storage);
    CHECK(!ended.empty());
    CHECK(ended.size() < static_cast<std::size_t>(trials));
    const auto again = searched(3, variant, 1, storage);
    CAPTURE(again.output);
    CHECK(again.status == 0);
    const auto after = calls(storage);
    CHECK(after.size() == static_cast<std::size_t>(trials));
    for (const std::string& trial : ended) {
        CHECK(after.at(trial) == before.at(trial));
    }
    for (int rank = 0; rank < 3; ++rank) {
        CHECK(results(storage, rank) == expected);
    }
    CHECK(nothing_is_left(storage));
}

} // namespace

TEST_CASE("Slots.a_killed_search_goes_on_and_runs_no_trial_twice") {
    const Directory alone("slots-slow-0");
    REQUIRE(searched(0, "slow", 1, alone).status == 0);
    for (const char* victim : {"pid-mpirun", "pid-0", "pid-2"}) {
        kill_and_go_on("slow", 12, 7, results(alone), victim);
    }
}

TEST_CASE("Slots.so_does_one_over_a_trainer") {
    const Directory alone("slots-slow-trainer-0");
    REQUIRE(searched(0, "slow-trainer", 1, alone).status == 0);
    for (const char* victim : {"pid-mpirun", "pid-1"}) {
        kill_and_go_on("slow-trainer", 7, 5, results(alone), victim);
    }
}
