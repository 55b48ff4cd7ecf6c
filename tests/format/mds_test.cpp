// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"

#include <rtrain/format/mds.hpp>
#include <rtrain/format/webdataset.hpp>
#include <rtrain/storage/file/file.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace rtrain;
using test::contains;
using test::error_of;

TEST_CASE("Mds.damaged_indices_and_samples_are_errors") {
    const std::string sound =
        R"({"version":2,"shards":[{"format":"mds","compression":null,"samples":2,)"
        R"("raw_data":{"basename":"s.mds","bytes":40},"column_names":["a","b"],)"
        R"("column_encodings":["int","str"],"column_sizes":[8,null]}]})";
    const auto shards = format::parse_mds_index(sound);
    REQUIRE(shards.size() == 1);
    CHECK(shards[0].columns[1].size == 0);
    const auto changed = [&](const std::string& from, const std::string& to) {
        std::string text = sound;
        text.replace(text.find(from), from.size(), to);
        return error_of([&] { static_cast<void>(format::parse_mds_index(text)); });
    };
    CHECK(contains(changed("\"s.mds\"", "\"../s.mds\""), "points outside"));
    CHECK(contains(changed("\"samples\":2", "\"samples\":-2"), "samples"));
    CHECK(contains(changed("\"bytes\":40", "\"bytes\":1e3"), "bytes"));
    CHECK(contains(changed("[8,null]", "[8]"), "equal length"));
    CHECK(contains(changed("\"version\":2", "\"version\":1"), "version"));
    CHECK(contains(changed("\"format\":\"mds\"", "\"format\":\"jsonl\""), "format"));
    CHECK(contains(changed("]}", ""), "JSON"));
    const auto type = [](const std::string& encoding, std::uint32_t size) {
        return format::mds_type({.name = "x", .encoding = encoding, .size = size});
    };
    CHECK(type("ndarray:int16:2,3", 12).shape == std::vector<std::int64_t>{2, 3});
    CHECK(type("str", 0).bytes == 0);
    for (const std::string bad :
         {"pkl", "ndarray", "ndarray:int16", "ndarray:int16:", "ndarray:x:2", "ndarray:int16:2,-3",
          "ndarray:int16:99999999999999999999", "pil"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(static_cast<void>(type(bad, 12)), std::invalid_argument);
    }
    CHECK_THROWS_AS(static_cast<void>(type("int", 4)), std::invalid_argument);
    const auto table = [](std::vector<std::uint32_t> numbers) {
        std::string bytes;
        for (const std::uint32_t number : numbers) {
            for (unsigned i = 0; i < 4; ++i) {
                bytes += static_cast<char>(number >> (8 * i) & 0xFFU);
            }
        }
        return bytes;
    };
    CHECK(format::mds_offsets(table({2, 16, 30, 40}), 2, 40).back() == 40);
    for (const auto& bad : {table({3, 16, 30, 40}), table({2, 15, 30, 40}), table({2, 30, 16, 40}),
                            table({2, 16, 30, 41}), table({2, 16, 30}), std::string()}) {
        CHECK_THROWS_AS(static_cast<void>(format::mds_offsets(bad, 2, 40)), std::invalid_argument);
    }
    std::vector<std::string_view> values;
    const std::string sample = table({3}) + "12345678" + "abc";
    format::split_mds_sample(sample, shards[0].columns, values);
    CHECK(values == std::vector<std::string_view>{"12345678", "abc"});
    for (const std::string& bad : {sample + "x", sample.substr(0, 14), sample.substr(0, 3)}) {
        CHECK_THROWS_AS(format::split_mds_sample(bad, shards[0].columns, values),
                        std::invalid_argument);
    }
}
