// SPDX-License-Identifier: Apache-2.0
#include <rtrain/base/text/number_in.hpp>

#include <doctest/doctest.h>

#include <optional>

TEST_CASE("NumberIn.is_all_of_the_text") {
    using rtrain::detail::number_in;
    CHECK(number_in<int>("-12") == -12);
    CHECK(number_in<double>("0.5") == 0.5);
    for (const char* const text : {"", "two", "4 ", " 4", "4x", "99999999999"}) {
        CHECK(number_in<int>(text) == std::nullopt);
    }
}
