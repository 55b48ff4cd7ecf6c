// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"

#include <rtrain/data/files/lines.hpp>
#include <rtrain/format/json_row.hpp>
#include <rtrain/storage/file/file.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

using namespace rtrain;
using test::contains;
using test::error_of;

TEST_CASE("Json.rows_are_cells") {
    format::JsonRowParser parser;
    const auto cells = parser.parse(R"({"i": -3, "d": 0.1, "t": "\u00e4\"", "b": true, "n": null,
                                        "li": [1, 2], "ld": [1, null, 2.5], "o": {"x": [1]},
                                        "lt": ["a"], "u": 18446744073709551615, "e": []})");
    using format::JsonKind;
    std::vector<JsonKind> kinds;
    for (const auto& cell : cells) {
        kinds.push_back(cell.kind);
    }
    CHECK(kinds == std::vector{JsonKind::integer, JsonKind::real, JsonKind::text, JsonKind::boolean,
                               JsonKind::null, JsonKind::integers, JsonKind::reals, JsonKind::other,
                               JsonKind::other, JsonKind::real, JsonKind::integers});
    CHECK(cells[0].integer == -3);
    CHECK(cells[2].text == "\u00e4\"");
    CHECK(cells[5].integers == std::vector<std::int64_t>{1, 2});
    CHECK(std::isnan(cells[6].reals[1]));
    CHECK(cells[6].reals[2] == 2.5);
    // Rounded as Python rounds, each double is back.
    std::mt19937_64 random(9);
    for (int i = 0; i < 2000; ++i) {
        const std::uint64_t bits = random();
        double number = 0;
        std::memcpy(&number, &bits, sizeof number);
        if (std::isfinite(number)) {
            std::array<char, 64> text{};
            std::snprintf(text.data(), text.size(), "{\"x\":%.17g}", number);
            const double back = parser.parse(text.data()).front().real;
            CHECK(back == number);
        }
    }
}

TEST_CASE("Json.lines_that_are_no_object_are_errors") {
    format::JsonRowParser parser;
    const auto error = [&](std::string_view text) {
        return error_of([&] { static_cast<void>(parser.parse(text)); });
    };
    using namespace std::string_view_literals;
    for (const auto text :
         {""sv, "x"sv, "{"sv, "{\"a\":1"sv, "{\"a\":1}x"sv, "{\"a\":1}{}"sv, "[1]"sv, "1"sv,
          "null"sv, "\"a\""sv, "true"sv, "{\"a\":\"\xFF\"}"sv, "{\"a\":\"\xED\xA0\x80\"}"sv,
          "{\"a\":\"\0\"}"sv, "{\"a\":NaN}"sv, "{'a':1}"sv, "{\"a\":1,}"sv}) {
        CAPTURE(text);
        CHECK_FALSE(error(text) == "no error");
    }
    CHECK(contains(error("{\"a\":" + std::string(100'000, '[')), "too deeply"));
    CHECK(error("{\"a\":1}") == "no error"); // it can be used after errors
}
