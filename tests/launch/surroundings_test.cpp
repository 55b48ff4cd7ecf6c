// SPDX-License-Identifier: Apache-2.0
// What surrounds a run: limits, temporary directories, signals that end it, and what it says when
// its ranks wait for each other for ever.
#include "support/programs.hpp"

#include <rtrain/train/preemption.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace surroundings_test {

using namespace rtrain;
using test::contains;
using test::no_process_is_left;
using test::run;

namespace {

/// A program that is running: `scenario <variant> <storage>`, with its temporary files in
/// `<storage>/tmp` and what it prints in `<storage>/out`.
class Program {
public:
    /// `ignored`: a signal that it is to ignore from its beginning; 0: none.
    Program(const std::string& variant, const test::Directory& storage, int ignored = 0)
        : temporary_(storage.path() / "tmp"), output_(storage.path() / "out") {
        std::filesystem::create_directory(temporary_);
        test::write(output_, "");
        const std::string path = storage.path().string();
        pid_ = ::fork();
        if (pid_ == 0) {
            ::setenv("TMPDIR", temporary_.c_str(), 1);
            if (ignored != 0) {
                ::signal(ignored, SIG_IGN);
            }
            const int out = ::open(output_.c_str(), O_WRONLY);
            ::dup2(out, STDOUT_FILENO);
            ::dup2(out, STDERR_FILENO);
            ::execl(RTRAIN_SCENARIO, RTRAIN_SCENARIO, variant.c_str(), path.c_str(), nullptr);
            ::_exit(127);
        }
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
    }

    /// Waits until it holds; fails the test when it does not within a minute.
    static void until(const std::function<bool()>& condition) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        while (!condition()) {
            REQUIRE(std::chrono::steady_clock::now() < end);
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    }
    void until_printed(const std::string& text, int times = 1) const {
        until([&] { return test::count(output(), text) >= times; });
    }

    void signal(int number) const { ::kill(pid_, number); }
    /// The status that it ends with, as the shell gives it.
    int wait() {
        int raw = 0;
        ::waitpid(std::exchange(pid_, -1), &raw, 0);
        return WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    }
    [[nodiscard]] bool has_temporary_files() const {
        return !std::filesystem::is_empty(temporary_);
    }
    /// A directory of this process under /dev/shm.
    [[nodiscard]] static bool has_shared_memory(pid_t process) {
        const auto name = rtrain::detail::concat("rtrain-", ::getuid(), '-', process, '-');
        for (const auto& item : std::filesystem::directory_iterator("/dev/shm")) {
            if (item.path().filename().string().starts_with(name)) {
                return true;
            }
        }
        return false;
    }
    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] std::string output() const { return test::read(output_); }

private:
    std::filesystem::path temporary_;
    std::filesystem::path output_;
    pid_t pid_ = -1;
};

} // namespace

TEST_CASE("Surroundings.too_few_files_are_named_at_the_start") {
    const test::Directory storage("few-files");
    const std::string program = RTRAIN_SCENARIO " two-fits " + storage.path().string();
    const auto driven = run("sh -c 'ulimit -n 24; timeout 60 " + program + "'");
    CAPTURE(driven.output);
    CHECK(driven.status == 1);
    CHECK(contains(driven.output, "RT-L17"));
    CHECK(contains(driven.output, "a process may have 24 files open"));
    CHECK(contains(driven.output, "starting 2 ranks needs 40"));
    const auto launched = test::run_on(2, "sh -c 'ulimit -n 20; exec " + program + "'");
    CAPTURE(launched.output);
    CHECK(launched.status != 0);
    CHECK(contains(launched.output, "RT-L17"));
    CHECK(contains(launched.output, "a process may have 20 files open"));
    CHECK(no_process_is_left(storage));
}

TEST_CASE("Surroundings.as_many_files_as_are_asked_for_suffice") {
    const test::Directory storage("enough-files");
    const auto result = run("sh -c 'ulimit -n 40; timeout 60 " RTRAIN_SCENARIO " two-fits " +
                            storage.path().string() + "'");
    CAPTURE(result.output);
    CHECK(result.status == 0);
    CHECK(contains(result.output, "RESULT 3 1 5 2"));
}

TEST_CASE("Surroundings.a_missing_temporary_directory_is_named") {
    const test::Directory storage("no-tmp");
    const auto result = run("TMPDIR=/nowhere/at/all timeout 60 " RTRAIN_SCENARIO " two-fits " +
                            storage.path().string());
    CAPTURE(result.output);
    CHECK(result.status == 1);
    CHECK(contains(result.output, "RT-C22"));
    CHECK(contains(result.output, "TMPDIR is \"/nowhere/at/all\""));
}

TEST_CASE("Surroundings.signals_leave_no_directory") {
    for (const int signal : {SIGINT, SIGHUP, SIGTERM}) {
        for (const bool early : {true, false}) {
            CAPTURE(signal);
            CAPTURE(early);
            const test::Directory storage(
                rtrain::detail::concat("ended-", signal, early ? "-early" : ""));
            Program program("slow", storage);
            const pid_t process = program.pid();
            if (early) { // ranks are being started
                Program::until([&] { return Program::has_shared_memory(process); });
            } else {
                Program::until([&] {
                    return std::filesystem::exists(storage.path() / "r/checkpoint_000000");
                });
            }
            program.signal(signal);
            const int status = program.wait();
            CAPTURE(program.output());
            CHECK(status == (signal == SIGHUP ? 128 + signal : preempted_exit_code));
            CHECK_FALSE(program.has_temporary_files());
            CHECK_FALSE(Program::has_shared_memory(process));
            CHECK(no_process_is_left(storage));
        }
    }
}

TEST_CASE("Surroundings.a_signal_that_is_ignored_stays_so") {
    const std::pair<int, int> nohup{SIGHUP, SIGINT};
    const std::pair<int, int> background{SIGINT, SIGHUP}; // as `program &` in a script
    for (const auto& [ignored, heeded] : {nohup, background}) {
        CAPTURE(ignored);
        const test::Directory storage(rtrain::detail::concat("ignored-", ignored));
        Program program("slow", storage, ignored);
        const auto newest = [&](const char* name) {
            return std::filesystem::exists(storage.path() / "r" / name);
        };
        Program::until([&] { return newest("checkpoint_000000"); });
        program.signal(ignored);
        Program::until([&] { return newest("checkpoint_000020") || newest("checkpoint_000021"); });
        program.signal(heeded);
        CHECK(program.wait() == (heeded == SIGHUP ? 128 + heeded : preempted_exit_code));
    }
}

TEST_CASE("Surroundings.handlers_of_a_program_are_its_own_again_behind_fit") {
    const test::Directory storage("own-handlers");
    const auto result =
        run("timeout 60 " RTRAIN_SCENARIO " own-handlers " + storage.path().string());
    CAPTURE(result.output);
    CHECK(result.status == 0);
    CHECK(test::count(result.output, "HANDLED") == 1);
}

TEST_CASE("Surroundings.a_notice_and_the_signal_that_follows_are_one_request") {
    const test::Directory storage("noticed");
    Program program("noticed", storage);
    Program::until([&] { return std::filesystem::exists(storage.path() / "r/checkpoint_000000"); });
    test::write(storage.path() / "notice", "");
    program.until_printed("preempted: saving");
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    program.signal(SIGTERM);
    CHECK(program.wait() == preempted_exit_code);
    CAPTURE(program.output());
    CHECK(std::filesystem::exists(storage.path() / "r/checkpoint_000001"));
    CHECK(no_process_is_left(storage));
}

TEST_CASE("Surroundings.the_first_ctrl_c_saves_and_the_second_ends_the_run") {
    const test::Directory saved("interrupted");
    Program first("slow", saved);
    Program::until([&] { return std::filesystem::exists(saved.path() / "r/checkpoint_000000"); });
    first.signal(SIGINT);
    CHECK(first.wait() == preempted_exit_code);
    CAPTURE(first.output());
    CHECK(contains(first.output(), "preempted: saving a checkpoint"));
    CHECK(contains(first.output(), "run the same command to resume"));
    CHECK(no_process_is_left(saved));

    const test::Directory lost("interrupted-twice");
    Program second("noticed", lost); // whose second step takes long
    Program::until([&] { return std::filesystem::exists(lost.path() / "r/checkpoint_000000"); });
    second.signal(SIGINT);
    second.until_printed("preempted: saving");
    std::this_thread::sleep_for(std::chrono::milliseconds(150)); // else it might be an echo
    second.signal(SIGINT);
    CHECK(second.wait() == 128 + SIGINT);
    CAPTURE(second.output());
    CHECK(contains(second.output(), "without saving; run the same command"));
    CHECK_FALSE(std::filesystem::exists(lost.path() / "r/checkpoint_000001"));
    CHECK(no_process_is_left(lost));
}

TEST_CASE("Surroundings.a_program_that_is_built_anew_meanwhile_goes_on") {
    const test::Directory storage("rebuilt");
    const auto program = storage.path() / "program";
    for (const char* workers : {"1", "2"}) { // without mpirun, and with it
        CAPTURE(workers);
        std::filesystem::copy_file(RTRAIN_SCENARIO, program,
                                   std::filesystem::copy_options::overwrite_existing);
        const auto runs = storage.path() / workers;
        const auto result =
            run(rtrain::detail::concat("RTRAIN_TEST_WORKERS=", workers, " timeout 60 ",
                                       program.string(), " rebuilt ", runs.string()));
        CAPTURE(result.output);
        CHECK(result.status == 0);
        CHECK(contains(result.output, "RESULT 2"));
    }
}

TEST_CASE("Surroundings.ranks_that_wait_for_each_other_are_shown_with_their_calls") {
    const test::Directory storage("crossed");
    const auto result = run("timeout 60 " RTRAIN_SCENARIO " crossed " + storage.path().string());
    CAPTURE(result.output);
    CHECK(result.status == 1);
    CHECK(contains(result.output, "RT-L14"));
    CHECK(contains(result.output, "rank 0 waits in all_reduce(sum) of 7 Float"));
    CHECK(contains(result.output, "rank 1 waits in barrier"));
    CHECK(contains(result.output, "RTRAIN_CHECK_CALLS=1"));
#ifdef RTRAIN_TEST_STACKTRACE // the program exports no names
    CHECK(test::count(result.output, "(anonymous namespace)::wait_in_different_calls") == 2);
#endif
    CHECK(no_process_is_left(storage));
}

TEST_CASE("Surroundings.ranks_that_cannot_make_room_are_not_waited_for") {
    const test::Directory storage("crossed-unnoticed");
    Program program("crossed-unnoticed", storage);
    program.until_printed("WAITS", 2);
    program.signal(SIGTERM);
    CHECK(program.wait() == preempted_exit_code);
    CAPTURE(program.output());
    CHECK(contains(program.output(), "could not save: the ranks hang"));
    CHECK(contains(program.output(), "rank 0 waits in all_reduce(sum) of 7 Float"));
    CHECK_FALSE(contains(program.output(), "had no time to save"));
    CHECK(no_process_is_left(storage));
}

} // namespace surroundings_test
