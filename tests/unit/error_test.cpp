// SPDX-License-Identifier: Apache-2.0
#include <rtrain/base/error.hpp>

#include <doctest/doctest.h>

using namespace rtrain;

TEST_CASE("Error.from_another_rank_has_the_class_that_it_was_thrown_with") {
    const auto thrown = [](const char* code) { detail::throw_error(code, "text"); };
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
