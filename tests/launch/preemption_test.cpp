// SPDX-License-Identifier: Apache-2.0
#include <rtrain/process/preemption_signals.hpp>

#include <doctest/doctest.h>

#include <csignal>
#include <limits>

#include <sys/wait.h>
#include <unistd.h>

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
