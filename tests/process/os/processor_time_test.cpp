// SPDX-License-Identifier: Apache-2.0

#include <rtrain/process/os/processor_time.hpp>

#include <doctest/doctest.h>

#include <ctime>

#include <sys/wait.h>
#include <unistd.h>

using namespace rtrain;

TEST_CASE("ProcessorTime.that_of_children_counts_while_they_run_and_afterwards") {
    const double before_s = process::processor_time_of_children_s();
    int ready[2];
    int end[2];
    REQUIRE(::pipe(ready) == 0);
    REQUIRE(::pipe(end) == 0);
    const pid_t child = ::fork();
    if (child == 0) { // and a child of its own, which computes
        ::close(end[1]);
        if (::fork() == 0) {
            timespec used{};
            while (used.tv_sec == 0 && used.tv_nsec < 200'000'000) {
                ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
            }
            (void)!::write(ready[1], "x", 1);
        }
        char byte = 0;
        (void)!::read(end[0], &byte, 1); // until the test is over
        while (::wait(nullptr) > 0) {
        }
        ::_exit(0);
    }
    ::close(end[0]);
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    CHECK(process::processor_time_of_children_s() - before_s >= 0.15); // in ticks of 10 ms
    CHECK(process::processor_time_s() >= 0.15);
    ::close(end[1]);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    CHECK(process::processor_time_of_children_s() - before_s >= 0.15);
}
