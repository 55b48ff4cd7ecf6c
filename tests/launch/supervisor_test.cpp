// SPDX-License-Identifier: Apache-2.0
// A Supervisor runs any program: here the shell's, which knows nothing of rtrain.
#include "programs.hpp"

#include <rtrain/launch/supervise/supervisor.hpp>
#include <rtrain/storage/file/file.hpp>

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>

#include <csignal>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace rtrain;
using namespace rtrain::launch;

namespace {

/// Runs that begin together on one io_context.
class Runs {
public:
    Runs() : children_(io_, SIGCHLD) {}

    /// `script` is run by each of 2 ranks, in `directory`, where it leaves its result in $RESULT.
    void add(const test::Directory& directory, const std::string& script, FailureConfig failure) {
        const auto result = directory.path() / "result";
        std::filesystem::permissions(directory.path(), std::filesystem::perms::owner_all);
        failure.hang.enabled = false; // it does not report
        const std::size_t index = ends_.size();
        ends_.emplace_back();
        runs_.push_back(std::make_unique<Supervisor>(
            io_,
            Task{.program = Program::argv({"/bin/sh", "-c", script}),
                 .prepare =
                     [result](bool, const std::vector<std::string>&) {
                         std::filesystem::remove(result);
                         return LaunchEnvironment{.variables = {{"RESULT", result.string()}},
                                                  .directory = result.parent_path(),
                                                  .keeps_input = true};
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
                                    .code = ErrorCode::parse("NOTHING")}},
            ScalingConfig{.num_workers = 2}, failure, [this, index](RunEnd end) {
                ends_[index] = std::move(end);
                if (++over_ == ends_.size()) {
                    io_.stop();
                }
            }));
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
        listen();
        for (const auto& run : runs_) {
            run->start();
        }
        io_.run();
        return ends_;
    }

private:
    void listen() {
        children_.async_wait([this](const boost::system::error_code& error, int) {
            if (!error) {
                for (const auto& run : runs_) {
                    run->reap();
                }
                listen();
            }
        });
    }

    boost::asio::io_context io_;
    boost::asio::signal_set children_;
    std::vector<std::unique_ptr<Supervisor>> runs_;
    std::vector<RunEnd> ends_;
    std::size_t over_ = 0;
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
