// SPDX-License-Identifier: Apache-2.0
/// @file
/// Common part of the conformance suites: each is a class whose members are test cases. They use
/// doctest, which the program provides: its include directory, and its implementation in one
/// source.
#pragma once

#include <doctest/doctest.h>

/// The test case "AREA.WHOSE.HOLDS", with a new SUITE constructed from the remaining arguments.
#define RTRAIN_TESTING_CASE(AREA, WHOSE, SUITE, HOLDS, ...)                                        \
    DOCTEST_TEST_CASE(AREA "." #WHOSE "." #HOLDS* doctest::timeout(120)) {                         \
        rtrain::testing::SUITE(__VA_ARGS__).HOLDS();                                               \
    }
