// SPDX-License-Identifier: Apache-2.0

#include <rtrain/base/json.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

using namespace rtrain;

TEST_CASE("Json.numbers_keep_their_bits") {
    std::mt19937_64 random(1);
    for (int i = 0; i < 20000; ++i) {
        const double value = std::bit_cast<double>(random());
        if (std::isfinite(value)) {
            CHECK(json::parse(json::serialize(value)).to_number<double>() == value);
        }
    }
    CHECK(json::serialize(
              {{"a", std::nan("")}, {"b", {1, std::numeric_limits<double>::infinity()}}}) ==
          R"({"a":null,"b":[1,"inf"]})");
    CHECK_THROWS_AS((void)json::parse("{\"a\":1"), std::invalid_argument);
    CHECK_THROWS_AS((void)json::parse("{} x"), std::invalid_argument);
    CHECK(json::parse(R"({"s":"a\nb","n":[true,false,null,-3,18446744073709551615]})") ==
          boost::json::value(
              {{"s", "a\nb"}, {"n", {true, false, nullptr, -3, 18446744073709551615U}}}));
}
