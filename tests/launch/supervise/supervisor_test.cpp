// SPDX-License-Identifier: Apache-2.0
// A Supervisor runs any program: here the shell's, which knows nothing of rtrain.
#include "support/files.hpp"
#include "support/thrown.hpp"

#include <rtrain/launch/supervise/supervisor.hpp>
#include <rtrain/process/os/others.hpp>
#include <rtrain/storage/file/file.hpp>

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <csignal>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace rtrain;
using namespace rtrain::launch;

namespace {

struct Ranks {
    int number = 2;
    bool need_mpi = true;
};

/// Runs that begin together on one io_context.
class Runs {
public:
    /// `script` is run by each rank, in `directory`, where it leaves its result in $RESULT. Without
    /// mpirun it gets its RANK and the ATTEMPT.
    void add(const test::Directory& directory, const std::string& script, FailureConfig failure,
             Ranks ranks = {}) {
        const auto result = directory.path() / "result";
        std::filesystem::permissions(directory.path(), std::filesystem::perms::owner_all);
        failure.hang.enabled = false; // it does not report
        const std::size_t index = ends_.size();
        ends_.emplace_back();
        runs_.push_back(std::make_unique<Supervisor>(
            io_,
            Task{.program = Program::argv({"/bin/sh", "-c", script}),
                 .prepare =
                     [result](const LaunchRequest& start) {
                         std::filesystem::remove(result);
                         return environment_of(start, result);
                     },
                 .result = [result]() -> std::optional<std::string> {
                     return std::filesystem::exists(result)
                                ? std::optional(storage::read_file(result))
                                : std::nullopt;
                 },
                 .failure_in = [](const std::string& text) -> std::optional<Failure> {
                     return text == "bad\n" ? std::optional(Failure{.message = "bad luck"})
                                            : std::nullopt;
                 },
                 .without_result = {.kind = Failure::Kind::configuration,
                                    .code = ErrorCode::parse("NOTHING")},
                 .heard =
                     [this](OutputStream stream, const RankLine& line) {
                         lines_[{line.rank, stream}].push_back(line.text);
                     },
                 .needs_mpi = ranks.need_mpi},
            ScalingConfig{.num_workers = ranks.number}, failure, [this, index](RunEnd end) {
                ends_[index] = std::move(end);
                if (++over_ == ends_.size()) {
                    io_.stop();
                }
            }));
    }

    /// What a rank has printed to a stream, in any of the runs.
    [[nodiscard]] const std::vector<std::string>& lines(int rank, OutputStream stream) {
        return lines_[{rank, stream}];
    }

    /// Told to all as soon as they have begun.
    void make_room() {
        boost::asio::post(io_, [this] {
            for (const auto& run : runs_) {
                run->make_room();
            }
        });
    }

    std::vector<RunEnd> wait() {
        for (const auto& run : runs_) {
            run->start();
        }
        io_.run();
        return ends_;
    }

private:
    static LaunchEnvironment environment_of(const LaunchRequest& start,
                                            const std::filesystem::path& result) {
        LaunchEnvironment given{
            .variables = {{"RESULT", result.string()}, {"ATTEMPT", std::to_string(start.attempt)}},
            .directory = result.parent_path(),
            .keeps_input = true};
        for (int rank = 0; rank < start.ranks; ++rank) {
            given.rank_variables.push_back({{"RANK", std::to_string(rank)}});
        }
        return given;
    }

    std::vector<RunEnd> ends_;
    std::map<std::pair<int, OutputStream>, std::vector<std::string>> lines_;
    std::size_t over_ = 0;
    boost::asio::io_context io_;
    std::vector<std::unique_ptr<Supervisor>> runs_; // uses all others
};

} // namespace

TEST_CASE("Supervisor.runs_of_any_programs_share_an_io_context") {
    const test::Directory good("supervised-good");
    const test::Directory second("supervised-second");
    const test::Directory dying("supervised-dying");
    const test::Directory bad("supervised-bad");
    const test::Directory silent("supervised-silent");
    Runs runs;
    const std::string first_rank = "[ $OMPI_COMM_WORLD_RANK = 0 ] || exit 0; ";
    runs.add(good, first_rank + "echo 17 > $RESULT", {});
    runs.add(second,
             first_rank + "[ -e $RESULT.tried ] || { touch $RESULT.tried; exit 3; }; "
                          "echo 18 > $RESULT",
             {});
    runs.add(dying, first_rank + "exit 3", {.controller_failure_limit = 0});
    runs.add(bad, first_rank + "echo bad > $RESULT", {.max_failures = 1});
    runs.add(silent, "true", {});
    const auto ends = runs.wait();

    CHECK(ends[0].result == "17\n");
    CHECK(!ends[0].failure);
    CHECK(ends[1].result == "18\n"); // of the second start
    CHECK(!ends[1].failure);
    REQUIRE(ends[2].failure);
    CHECK(!ends[2].result);
    CHECK(ends[2].failure->code.text() == "RT-L2");
    CHECK(ends[2].failure->kind == Failure::Kind::start_up);
    // mpirun names the rank as a rule: "exit code 3". If the others are gone, only its own "exit
    // status is 3".
    CHECK((test::contains(ends[2].failure->message, "exit code 3") ||
           test::contains(ends[2].failure->message, "exit status is 3")));
    CHECK(ends[3].result == "bad\n"); // after a restart
    REQUIRE(ends[3].failure);
    CHECK(ends[3].failure->message == "bad luck");
    REQUIRE(ends[4].failure);
    CHECK(ends[4].failure->code.text() == "NOTHING");
}

TEST_CASE("Supervisor.the_longest_grace_is_no_malformed_message") {
    const test::Directory storage("supervised-patiently");
    Runs runs;
    runs.add(storage, "[ $OMPI_COMM_WORLD_RANK = 0 ] || exit 0; sleep 0.5; echo 17 > $RESULT",
             {.preemption_grace_s = std::numeric_limits<double>::infinity()});
    runs.make_room();
    const auto ends = runs.wait();
    CHECK(ends[0].result == "17\n");
    CHECK(!ends[0].failure);
}

TEST_CASE("Supervisor.ranks_without_mpirun_have_their_own_variables_and_streams") {
    const test::Directory storage("supervised-streams");
    constexpr int ranks = 4;
    Runs runs;
    // More than pipes hold, all at once; and a last line without an end.
    runs.add(storage,
             "i=0; while [ $i -lt 20000 ]; do echo \"$RANK says $i\"; i=$((i + 1)); done; "
             "echo \"error of $RANK\" >&2; printf \"$RANK ends\"; "
             "[ $RANK = 3 ] && echo 17 > $RESULT || true",
             {}, {.number = ranks, .need_mpi = false});
    const auto ends = runs.wait();
    CHECK(ends[0].result == "17\n");
    for (int rank = 0; rank < ranks; ++rank) {
        CAPTURE(rank);
        const std::string own = std::to_string(rank);
        const auto& lines = runs.lines(rank, OutputStream::out);
        REQUIRE(lines.size() == 20'001);
        for (std::size_t i = 0; i < 20'000; ++i) {
            REQUIRE(lines[i] == own + " says " + std::to_string(i));
        }
        CHECK(lines.back() == own + " ends");
        CHECK(runs.lines(rank, OutputStream::err) == std::vector<std::string>{"error of " + own});
    }
}

TEST_CASE("Supervisor.a_rank_without_mpirun_that_fails_ends_the_others" * doctest::timeout(120)) {
    const test::Directory killed("supervised-killed");
    const test::Directory failed("supervised-failed");
    const test::Directory restarted("supervised-restarted");
    const Ranks ranks{.number = 3, .need_mpi = false};
    const auto child = killed.path() / "child";
    // The others wait, each with a child, until all have begun.
    const std::string others = "sleep 1000 & echo $! > " + child.string() +
                               "-$RANK-$ATTEMPT; [ $RANK = 1 ] || wait; until [ -e " +
                               child.string() + "-2-$ATTEMPT ] && [ -e " + child.string() +
                               "-0-$ATTEMPT ]; do :; done; ";
    Runs runs;
    runs.add(killed, others + "kill -9 $$", {.controller_failure_limit = 1}, ranks);
    runs.add(failed, "[ $RANK = 1 ] && exit 3; exec sleep 1000", {.controller_failure_limit = 0},
             ranks);
    runs.add(restarted,
             "[ $ATTEMPT.$RANK = 1.1 ] && exit 3; [ $ATTEMPT = 2 ] || exec sleep 1000; echo 18 > "
             "$RESULT",
             {}, ranks);
    const auto ends = runs.wait();
    REQUIRE(ends[0].failure);
    CHECK(ends[0].failure->message == "rank 1 was killed by signal 9 (Killed)");
    CHECK(ends[0].failure->rank == 1);
    CHECK(ends[0].failure->from_outside);
    for (const std::string rank : {"-0", "-1", "-2"}) { // and what they have started
        for (const std::string attempt : {"-1", "-2"}) {
            const std::string pid = storage::read_file(child.string() + rank + attempt);
            while (storage::process_is_alive(std::stoi(pid))) {
                std::this_thread::yield();
            }
        }
    }
    REQUIRE(ends[1].failure);
    CHECK(ends[1].failure->message == "rank 1 ended with exit code 3");
    CHECK(ends[1].failure->code.text() == "RT-L2");
    CHECK_FALSE(ends[1].failure->from_outside);
    CHECK(ends[2].result == "18\n"); // of the second start
}
