// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"
#include <rtrain/process/context.hpp>
#include <rtrain/process/os/file_size_limit.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/process/preemption/preemption_signals.hpp>
#include <rtrain/process/status/attempt_status.hpp>
#include <rtrain/process/stdio/standard_streams.hpp>
#include <rtrain/storage/file/file.hpp>

#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <stop_token>
#include <string>

#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using rtrain::AttemptStatus;
using rtrain::CommError;
using rtrain::PreemptionNotice;
using rtrain::ProcessContext;
using rtrain::launch::PreemptionSignals;

namespace {

/// The exit code of a child that calls `function()` and exits with what it returns.
template <class F>
int exit_code_of_child(F&& function) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::_exit(function());
    }
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace

TEST_CASE("PreemptionNotice.no_grace_is_too_long_for_a_clock") {
    for (const double grace_s : {1e10, 1e300, std::numeric_limits<double>::infinity()}) {
        CAPTURE(grace_s);
        PreemptionNotice notice;
        notice.give(grace_s);
        CHECK(notice.given());
        CHECK(notice.seconds_left() > 3600);
    }
}

TEST_CASE("PreemptionSignals.the_first_of_each_run_is_a_notice") {
    const pid_t child = ::fork();
    if (child == 0) {
        for (const int signal : PreemptionSignals::signals) {
            ::signal(signal, SIG_DFL);
        }
        {
            const PreemptionSignals first(ProcessContext::current().notice, 60);
            ::raise(SIGUSR1); // behind its last report
        }
        ::usleep(1'200'000); // longer than what is taken for one signal
        const PreemptionSignals second(ProcessContext::current().notice, 60);
        ::raise(SIGINT);
        ::_exit(ProcessContext::current().notice.given() ? 17 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 17);
}

TEST_CASE("PreemptionSignals.two_in_a_row_are_one_notice_and_a_later_one_ends_the_process") {
    const auto status_after = [](int pause_us, int second = SIGTERM) {
        const pid_t child = ::fork();
        if (child == 0) {
            for (const int signal : PreemptionSignals::signals) {
                ::signal(signal, SIG_DFL);
            }
            const PreemptionSignals signals(ProcessContext::current().notice, 60);
            ::raise(SIGUSR1);
            ::usleep(static_cast<useconds_t>(pause_us));
            ::raise(second);
            ::_exit(ProcessContext::current().notice.given() ? 17 : 1);
        }
        int status = 0;
        CHECK(::waitpid(child, &status, 0) == child);
        return status;
    };
    const int echoed = status_after(0); // as mpirun and a job manager both send it
    CHECK(WIFEXITED(echoed));
    CHECK(WEXITSTATUS(echoed) == 17);
    const int repeated = status_after(1'200'000);
    CHECK(WIFSIGNALED(repeated));
    CHECK(WTERMSIG(repeated) == SIGTERM);
    const int pressed = status_after(150'000, SIGINT); // Ctrl-C is no echo so late
    CHECK(WIFSIGNALED(pressed));
    CHECK(WTERMSIG(pressed) == SIGINT);
}

TEST_CASE("Thread.none_to_be_had_is_an_error_with_advice") {
    const int code = exit_code_of_child([] {
        pthread_attr_t huge;
        ::pthread_attr_init(&huge);
        ::pthread_attr_setstacksize(&huge, std::size_t{1} << 46); // no address space has room
        ::pthread_setattr_default_np(&huge);
        try {
            const rtrain::process::Thread thread([] {});
        } catch (const rtrain::LaunchError& error) {
            const std::string text = error.what();
            return test::contains(text, "cannot start a thread: Resource temporarily") &&
                           test::contains(text, "ulimit -u") && error.code() == "RT-L45"
                       ? 17
                       : 1;
        }
        return 2;
    });
    CHECK(code == 17);
}

TEST_CASE("Thread.whether_so_many_can_be_started_is_tried") {
    rtrain::process::require_threads(300, "a test");
    const int code = exit_code_of_child([] {
        const rlimit limit{3, 3}; // processes and threads of a user without rights
        if (::setrlimit(RLIMIT_NPROC, &limit) != 0 || ::setgid(65534) != 0 ||
            ::setuid(65533) != 0) {
            return 18; // this user may not become another one
        }
        rtrain::process::require_threads(1, "a test");
        try {
            rtrain::process::require_threads(10, "starting 2 ranks");
        } catch (const rtrain::LaunchError& error) {
            const std::string text = error.what();
            return test::contains(text, "where starting 2 ranks needs 10") &&
                           test::contains(text, "may have 3 processes and threads (ulimit -u)")
                       ? 17
                       : 1;
        }
        return 2;
    });
    if (code == 18) {
        MESSAGE("skipped: this user has no right to become another one");
    } else {
        CHECK(code == 17);
    }
}

TEST_CASE("Thread.a_forked_process_leaves_it_alone" * doctest::timeout(60)) {
    rtrain::process::Thread thread([](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
            ::usleep(1000);
        }
    });
    CHECK(thread.joinable());
    CHECK(exit_code_of_child([&] {
              const bool is_here = thread.joinable();
              thread =
                  rtrain::process::Thread(); // would wait for ever for a thread that is not here
              return is_here ? 1 : 17;
          }) == 17);
    CHECK(thread.joinable());
}

TEST_CASE("Owner.who_comes_back_from_a_function_in_a_forked_process_ends") {
    for (const bool throws : {false, true}) {
        CAPTURE(throws);
        int status = 0;
        rtrain::process::call_in_this_process([&] {
            const pid_t child = ::fork();
            if (child == 0 && throws) {
                throw std::runtime_error("a child's");
            }
            if (child > 0) {
                ::waitpid(child, &status, 0);
            }
        });
        REQUIRE(WIFEXITED(status)); // only this process comes here
        CHECK(WEXITSTATUS(status) == (throws ? 1 : 0));
    }
}

TEST_CASE("StandardStreams.dev_null_is_opened_for_those_that_are_closed") {
    for (const int closed : {0, 1, 2, 3}) { // 3: all of them
        CAPTURE(closed);
        CHECK(exit_code_of_child([&] {
                  for (const int number : {0, 1, 2}) {
                      if (closed == number || closed == 3) {
                          ::close(number);
                      }
                  }
                  rtrain::process::open_standard_streams();
                  const int next = ::open("/dev/null", O_RDONLY);
                  for (const int number : {0, 1, 2}) {
                      struct stat found {};
                      const bool is_open = ::fstat(number, &found) == 0;
                      const bool was_closed = closed == number || closed == 3;
                      if (!is_open || (was_closed && !S_ISCHR(found.st_mode))) {
                          return 1;
                      }
                  }
                  return next > 2 ? 17 : 2;
              }) == 17);
    }
}

TEST_CASE("StandardStreams.a_full_pipe_is_blocked_until_it_is_read") {
    CHECK(exit_code_of_child([] {
              int ends[2];
              (void)!::pipe2(ends, O_NONBLOCK);
              ::dup2(ends[1], STDOUT_FILENO);
              ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
              const bool before = rtrain::process::is_output_blocked();
              const std::string page(4096, '.');
              while (::write(ends[1], page.data(), page.size()) > 0) {
              }
              const bool full = rtrain::process::is_output_blocked();
              std::string all(std::size_t{1} << 20, '\0');
              while (::read(ends[0], all.data(), all.size()) > 0) {
              }
              return !before && full && !rtrain::process::is_output_blocked() ? 17 : 1;
          }) == 17);
}

TEST_CASE("FileSizeLimit.is_an_error_of_who_writes") {
    const auto file =
        std::filesystem::temp_directory_path() / ("rtrain-file-size-" + std::to_string(::getpid()));
    CHECK(exit_code_of_child([&] {
              ::signal(SIGXFSZ, SIG_DFL);
              rtrain::process::survive_file_size_limit();
              const rlimit limit{4096, 4096};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              try {
                  rtrain::storage::OutputFile out(file);
                  const std::string bytes(10'000, '.');
                  out.write(bytes.data(), bytes.size());
              } catch (const rtrain::StorageError& error) {
                  const std::string text = error.what();
                  return error.code() == "RT-S45" && test::contains(text, "File too large") &&
                                 test::contains(text, "files of 4096 bytes here: raise `ulimit -f`")
                             ? 17
                             : 1;
              }
              return 2;
          }) == 17);
    std::filesystem::remove(file);
}

TEST_CASE("AttemptStatus.the_first_error_counts_and_the_third_stay_ends_the_process") {
    AttemptStatus status;
    status.fail({.code = "RT-X3", .message = "before"});
    CHECK(!status.is_over()); // no function runs
    int ended = 0;
    status.begin([&] { ++ended; });
    CHECK(!status.is_over());
    status.fail({.code = "RT-X10", .message = "first"});
    status.fail({.code = "RT-X4", .message = "second"});
    CHECK(status.is_over());
    CHECK(status.failure()->code.text() == "RT-X10");
    status.end();
    status.begin([&] { ++ended; });
    CHECK(!status.failure());
    CHECK(!status.was_left());
    status.leave();
    status.leave();
    CHECK(status.is_over());
    CHECK(status.was_left());
    CHECK(ended == 0);
    status.leave();
    CHECK(ended == 1);
}
