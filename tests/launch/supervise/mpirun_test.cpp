// SPDX-License-Identifier: Apache-2.0
// Open MPI's mpirun and MPICH's: how they are called, and what they say. The second is the one that
// RTRAIN_TEST_HYDRA names.
#include <rtrain/launch/supervise/mpirun.hpp>
#include <rtrain/launch/supervise/started_ranks.hpp>
#include <rtrain/storage/file/temporary.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

using namespace rtrain;
using launch::MpirunVersion;

namespace {

struct Outcome {
    std::vector<std::string> lines; ///< "0: text", sorted
    launch::RankExit death;
    int status = 0;
};

/// Two ranks of a shell script, which knows its `rank`.
Outcome run_ranks(const std::string& script) {
    Outcome outcome;
    boost::asio::io_context io;
    const std::string rank = "rank=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; ";
    launch::RanksCommand command{.ranks = 2,
                                 .program = launch::Program::argv({"/bin/sh", "-c", rank + script}),
                                 .variables = {{"RTRAIN_TEST_VARIABLE", "given"}}};
    command.heard = [&](OutputStream, const launch::RankLine& line) {
        outcome.lines.push_back(std::to_string(line.rank) + ": " + line.text);
    };
    launch::StartedRanks ranks(io, command, {.ended = [] {}});
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!ranks.ended() && std::chrono::steady_clock::now() < end) {
        io.restart();
        io.run_for(std::chrono::milliseconds(20));
    }
    REQUIRE(ranks.ended());
    outcome.status = *ranks.status();
    outcome.death = ranks.death();
    std::sort(outcome.lines.begin(), outcome.lines.end());
    return outcome;
}

/// Open MPI's mpirun does not always say what a rank has died of, when that is no program of MPI.
void check_ranks(bool always_tells) {
    const auto fine = run_ranks("echo \"$rank is $RTRAIN_TEST_VARIABLE\"; echo [1] no tag >&2; "
                                "test $rank = 1 || { read line; echo \"got $line\"; }");
    CHECK(fine.status == 0);
    CHECK(fine.lines == std::vector<std::string>{"0: 0 is given", "0: [1] no tag", "0: got ",
                                                 "1: 1 is given", "1: [1] no tag"});
    const auto killed = run_ranks("test $rank = 0 || kill -9 $$; exec sleep 30");
    CHECK(killed.status != 0);
    if (always_tells || killed.death.signal) {
        CHECK(killed.death.signal == 9);
        CHECK(killed.death.text.ends_with("was killed by signal 9 (Killed)"));
    }
    const auto failed = run_ranks("exit 3");
    CHECK(failed.status == 3);
    CHECK_FALSE(failed.death.signal);
}

} // namespace

TEST_CASE("Mpirun.version_is_read") {
    CHECK(MpirunVersion::of("mpirun (Open MPI) 4.1.4\n\nReport bugs to").open_mpi == 4);
    CHECK(MpirunVersion::of("mpirun (Open MPI) 5.0.11").open_mpi == 5);
    CHECK_FALSE(MpirunVersion::of("mpirun (Open MPI) 5.0.11").is_hydra);
    CHECK(MpirunVersion::of("HYDRA build details:\n    Version:  4.0.2\n").is_hydra);
    CHECK(MpirunVersion::of("Intel(R) MPI Library for Linux* OS, Version 2021.9").is_hydra);
    CHECK_FALSE(MpirunVersion::of("HYDRA build details:").open_mpi);
    CHECK_FALSE(MpirunVersion::of("").is_hydra);
}

TEST_CASE("Mpirun.is_called_as_it_wants_it") {
    launch::RanksCommand command{.ranks = 2,
                                 .arguments = {"--host", "a,b"},
                                 .program = launch::Program::argv({"train"}),
                                 .variables = {{"X", "1"}}};
    CHECK(launch::mpirun_words("mpirun", command, {.open_mpi = 4}) ==
          std::vector<std::string>{"mpirun", "-n", "2", "--tag-output", "-x", "X", "--host", "a,b",
                                   "train"});
    CHECK(launch::mpirun_words("mpirun", command, {.is_hydra = true}) ==
          std::vector<std::string>{"mpirun", "-n", "2", "-prepend-pattern",
                                   "[1,%r]<stdout>:", "--host", "a,b", "train"});
    command.survive_deaths = true;
    const auto surviving = launch::mpirun_words("mpirun", command, {.open_mpi = 5});
    CHECK(std::find(surviving.begin(), surviving.end(), "--with-ft") != surviving.end());
}

TEST_CASE("Mpirun.starts_ranks" * doctest::timeout(90)) {
    check_ranks(false);
}

TEST_CASE("Mpirun.of_mpich_starts_ranks" * doctest::timeout(90)) {
    const char* const hydra = std::getenv("RTRAIN_TEST_HYDRA");
    if (hydra == nullptr || !std::filesystem::exists(hydra)) {
        MESSAGE("MPICH's mpiexec.hydra is not on PATH");
        return;
    }
    const auto directory =
        storage::temporary_directory() / ("rtrain-hydra-" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory);
    std::filesystem::create_symlink(hydra, directory / "mpirun");
    const char* const proxy = "hydra_pmi_proxy"; // looked for beside it
    std::filesystem::create_symlink(std::filesystem::path(hydra).parent_path() / proxy,
                                    directory / proxy);
    const std::string path = std::getenv("PATH");
    ::setenv("PATH", (directory.string() + ":" + path).c_str(), 1);
    CHECK(MpirunVersion::on_path().is_hydra);
    check_ranks(true);
    ::setenv("PATH", path.c_str(), 1);
    std::filesystem::remove_all(directory);
}
