// SPDX-License-Identifier: Apache-2.0
#include <rtrain/base/error.hpp>

#include "support/thrown.hpp"

#include <doctest/doctest.h>

using namespace rtrain;

TEST_CASE("Error.from_another_rank_has_the_class_that_it_was_thrown_with") {
    const auto thrown = [](const char* code) {
        detail::throw_error({.code = ErrorCode::parse(code), .message = "text"});
    };
    CHECK_THROWS_AS(thrown("RT-C1"), ConfigError);
    CHECK_THROWS_AS(thrown("RT-D4"), DataError);
    CHECK_THROWS_AS(thrown("RT-S1"), StorageError);
    CHECK_THROWS_AS(thrown("RT-S12"), TransientStorageError);
    CHECK_THROWS_AS(thrown("RT-N10"), ConfigError);
    CHECK_THROWS_AS(thrown("RT-N5"), CommError);
    CHECK_THROWS_AS(thrown("RT-X4"), PeerError);
    CHECK_THROWS_AS(thrown("RT-X10"), CommError);
    CHECK_THROWS_AS(thrown("RT-U101"), ConfigError);
    CHECK_THROWS_AS(thrown("RT-U100"), StorageError);
    CHECK_THROWS_AS(thrown("RT-U114"), LaunchError);
    CHECK_THROWS_AS(thrown("RT-V66"), ConfigError);
    CHECK_THROWS_AS(thrown("RT-V40"), Error);
    CHECK_THROWS_AS(thrown("RT-T3"), PreemptionError);
    CHECK_THROWS_AS(thrown("RT-T1"), TrainingFailedError);
    for (const char* const code : {"RT-X10", "RT-U102", "RT-T2", "RT-Q7", "", "RT-"}) {
        try {
            thrown(code);
        } catch (const PeerError&) {
            FAIL("a communication error became a peer's");
        } catch (const Error& error) {
            CHECK(error.code() == code);
        }
    }
}

TEST_CASE("Error.of_a_program_keeps_its_own_code_on_other_ranks") {
    const Error error("RAIN", "the game is off");
    const Failure failure = detail::failure_of(error);
    CHECK(failure.text() == error.what());
    CHECK(failure.code.type() == ErrorClass::plain);
    CHECK(test::code_of([&] { detail::throw_error(failure); }) == "RAIN");
}

TEST_CASE("Error.escapes_control_characters_once") {
    const Error error("RT-T2", "a\x1b[31m \\x1b");
    CHECK(error.message() == "a\\x1b[31m \\x1b");
    CHECK(error.what() == error.message() + " [RT-T2]");
}

TEST_CASE("ErrorCode.is_compared_as_a_value_and_knows_its_class") {
    const DataError error("RT-D4", "torn");
    CHECK(error.is("RT-D4"));
    CHECK(!error.is("RT-D41"));
    const ErrorCode code = "RT-N10";
    CHECK(code == ErrorCode::parse("RT-N10"));
    CHECK(code.type() == ErrorClass::config);
    CHECK(code.text() == "RT-N10");
    CHECK(ErrorCode().empty());
    for (const char* const unknown : {"RT-D04", "RT-D", "RT-D4x", "RT-d4", "RT-D99999", "D4", ""}) {
        CHECK(ErrorCode::parse(unknown).type() == ErrorClass::plain);
        CHECK(ErrorCode::parse(unknown).text() == unknown);
    }
    CHECK(ErrorCode::parse("A-CODE-OF-MORE-THAN-15").text() == "A-CODE-OF-MORE-");
}
