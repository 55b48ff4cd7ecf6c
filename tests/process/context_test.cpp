// SPDX-License-Identifier: Apache-2.0
// What trainings of one process share, one after another and one inside another.
#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/fit_guard.hpp>
#include <rtrain/process/preemption/preemption_signals.hpp>
#include <rtrain/process/throw_for_good.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

using namespace rtrain;
using detail::FitGuard;
using launch::PreemptionSignals;

namespace {

/// Changes each part of a context.
void train_in(ProcessContext& context) {
    context.status.enter(Phase::training);
    context.status.condemned = true;
    context.loop.begin_epoch(4, 10);
    context.loop.begin_loop({.total = 8});
    context.clock.add_step();
    context.clock.add_rows(32);
    context.attempt.begin([] {});
    context.time_limit.set(TimeLimit::Clock::now() - std::chrono::hours(1));
    context.time_limit.agree(nullptr);
    context.notice.give(60);
    context.notice.listen(true);
    context.notice.agree(nullptr);
    CHECK(context.warned.add("net.pt"));
    console::settings().rank = 3;
    console::settings().least = console::Level::error;
}

void check_new(ProcessContext& context) {
    CHECK((context.status.phase.load() == Phase::starting));
    CHECK(context.status.progress == 0);
    CHECK_FALSE(context.status.condemned);
    CHECK(context.loop.read().epoch == 0);
    CHECK_FALSE(context.loop.read().under_way);
    CHECK(context.clock.steps() == 0);
    CHECK(context.clock.take().rows == 0);
    CHECK_FALSE(context.attempt.failure());
    CHECK_FALSE(context.time_limit.is_over());
    CHECK_FALSE(context.time_limit.agreed());
    CHECK_FALSE(context.notice.given());
    CHECK_FALSE(context.notice.is_listened_to());
    CHECK_FALSE(context.notice.agreed());
    CHECK(context.readings.longest().empty());
    CHECK(console::settings().rank == -1);
    CHECK((console::settings().least == console::Level::info));
}

bool fits_in(ProcessContext& context) {
    try {
        const FitGuard fitting(context);
        return true;
    } catch (const ConfigError& error) {
        CHECK(error.code() == "RT-C23");
        return false;
    }
}

} // namespace

TEST_CASE("ProcessContext.one_inside_another_shares_nothing") {
    ProcessContext outer;
    CHECK(&ProcessContext::current() == &outer);
    train_in(outer);
    const Reading reading(outer.readings, "rows.csv");
    {
        ProcessContext inner;
        CHECK(&ProcessContext::current() == &inner);
        check_new(inner);
        train_in(inner);
        CHECK_THROWS_AS(throw_for_good(CommError("RT-X10", "apart")), CommError);
        CHECK(inner.attempt.failure());
        CHECK_FALSE(outer.attempt.failure());
        inner.notice.reset();
        inner.clock.add_step();
    }
    CHECK(&ProcessContext::current() == &outer);
    CHECK(outer.clock.steps() == 1);
    CHECK(outer.notice.given());
    CHECK(outer.readings.longest() == "rows.csv");
    CHECK(console::settings().rank == 3);
}

TEST_CASE("ProcessContext.one_after_another_shares_nothing") {
    const ProcessContext* const program = &ProcessContext::current();
    for (int run = 0; run < 2; ++run) {
        ProcessContext context;
        check_new(context);
        train_in(context);
    }
    CHECK(&ProcessContext::current() == program);
    CHECK_FALSE(ProcessContext::current().notice.given());
}

TEST_CASE("ProcessContext.other_threads_have_the_same_one") {
    const ProcessContext context;
    const ProcessContext* seen = nullptr;
    std::thread([&] { seen = &ProcessContext::current(); }).join();
    CHECK(seen == &context);
}

TEST_CASE("FitGuard.a_context_fits_once_at_a_time_and_warns_again_in_the_next_call") {
    ProcessContext context;
    {
        const FitGuard fitting(context);
        CHECK(context.warned.add("net.pt"));
        CHECK_FALSE(context.warned.add("net.pt"));
        CHECK_FALSE(fits_in(context));
        CHECK_THROWS_AS(FitGuard::require_none(context), ConfigError);
        ProcessContext inner;
        CHECK(fits_in(inner));
    }
    const FitGuard fitting(context);
    CHECK(context.warned.add("net.pt"));
}

TEST_CASE("PreemptionSignals.are_of_the_training_that_is_innermost") {
    const pid_t child = ::fork();
    if (child == 0) {
        for (const int signal : PreemptionSignals::signals) {
            ::signal(signal, SIG_DFL);
        }
        ProcessContext outer;
        const PreemptionSignals outer_signals(outer.notice, 1000);
        {
            ProcessContext inner;
            const PreemptionSignals inner_signals(inner.notice, 60);
            ::raise(SIGUSR1);
            if (!inner.notice.given() || inner.notice.seconds_left() > 60 || outer.notice.given()) {
                ::_exit(1);
            }
        }
        ::raise(SIGUSR1); // within a second: another copy of the same signal
        ::_exit(outer.notice.given() && outer.notice.seconds_left() > 60 ? 17 : 2);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 17);
}
