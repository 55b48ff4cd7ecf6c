// SPDX-License-Identifier: Apache-2.0
#include <rtrain/process/attempt_status.hpp>
#include <rtrain/process/preemption_signals.hpp>

#include <doctest/doctest.h>

#include <csignal>
#include <limits>

#include <sys/wait.h>
#include <unistd.h>

using rtrain::AttemptStatus;
using rtrain::CommError;
using rtrain::PreemptionNotice;
using rtrain::launch::PreemptionSignals;

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
            const PreemptionSignals first(60);
            ::raise(SIGUSR1); // behind its last report
        }
        ::usleep(1'200'000); // longer than what is taken for one signal
        const PreemptionSignals second(60);
        ::raise(SIGTERM);
        ::_exit(PreemptionNotice::current().given() ? 17 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 17);
}

TEST_CASE("PreemptionSignals.two_in_a_row_are_one_notice_and_a_later_one_ends_the_process") {
    const auto status_after = [](int pause_us) {
        const pid_t child = ::fork();
        if (child == 0) {
            for (const int signal : PreemptionSignals::signals) {
                ::signal(signal, SIG_DFL);
            }
            const PreemptionSignals signals(60);
            ::raise(SIGUSR1);
            ::usleep(static_cast<useconds_t>(pause_us));
            ::raise(SIGTERM);
            ::_exit(PreemptionNotice::current().given() ? 17 : 1);
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
}

TEST_CASE("AttemptStatus.the_first_error_counts_and_the_third_stay_ends_the_process") {
    AttemptStatus status;
    status.fail(CommError("RT-X3", "before"));
    CHECK(!status.is_over()); // no function runs
    int ended = 0;
    status.begin([&] { ++ended; });
    CHECK(!status.is_over());
    status.fail(CommError("RT-X10", "first"));
    status.fail(CommError("RT-X4", "second"));
    CHECK(status.is_over());
    CHECK(status.failure()->code() == "RT-X10");
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
