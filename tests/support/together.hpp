// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs every test case on all ranks together. A rank that leaves a case early, by a failed REQUIRE
/// or an exception, says so and ends all of them: the others would wait for it. To be included by
/// the source that holds doctest's implementation.
#pragma once

#include <rtrain/comm/world/mpi.hpp>

#include <cstdio>
#include <iostream>
#include <string>

namespace test {
namespace { // as its base

struct TogetherReporter : doctest::ConsoleReporter {
    explicit TogetherReporter(const doctest::ContextOptions& options)
        : doctest::ConsoleReporter(options) {}

    void log_assert(const doctest::AssertData& assertion) override {
        doctest::ConsoleReporter::log_assert(assertion);
        if (assertion.m_failed && (assertion.m_at & doctest::assertType::is_require) != 0) {
            end_all("a REQUIRE has failed"); // here: destructors on the way out may wait, too
        }
    }
    void test_case_exception(const doctest::TestCaseException& exception) override {
        const std::string text = exception.error_string.c_str();
        if (exception.is_crash && text.starts_with("SIGTERM")) {
            return; // another rank has ended all
        }
        doctest::ConsoleReporter::test_case_exception(exception);
        end_all(exception.is_crash ? "a test case has crashed" : "a test case has thrown");
    }

private:
    static void end_all(const char* why) {
        int rank = 0;
        int size = 1;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        if (size > 1) {
            std::cout.flush();
            std::fprintf(stderr, "rank %d of %d: %s, so all ranks end\n", rank, size, why);
            std::fflush(nullptr);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
};

REGISTER_REPORTER("together", 0, TogetherReporter);

} // namespace

/// Fails when a check fails on any rank.
inline int run_together(int argc, char** argv) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    doctest::Context context;
    context.setOption("reporters", "together");
    context.setOption("minimal", rank != 0); // others print failures only
    context.applyCommandLine(argc, argv);
    int failed = context.run();
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return failed;
}

} // namespace test
