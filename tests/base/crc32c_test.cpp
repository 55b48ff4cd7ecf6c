// SPDX-License-Identifier: Apache-2.0

#include <rtrain/base/crc32c.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <random>
#include <string>
#include <string_view>

using namespace rtrain;

TEST_CASE("Crc32c.is_the_standard_one") {
    CHECK(checkpoint::crc32c("123456789") == 0xE3069283);
    CHECK(checkpoint::crc32c("") == 0);
    std::mt19937_64 random(3);
    std::string bytes(5 * checkpoint::ChunkSums::chunk + 1234, '\0');
    for (auto& byte : bytes) {
        byte = static_cast<char>(random());
    }
    checkpoint::ChunkSums whole;
    checkpoint::ChunkSums pieces;
    whole.add(bytes.data(), bytes.size());
    for (std::size_t i = 0; i < bytes.size();) {
        const std::size_t part = std::min<std::size_t>(bytes.size() - i, 1 + random() % 800'000);
        pieces.add(&bytes[i], part);
        i += part;
    }
    const auto sums = whole.finish();
    CHECK(sums == pieces.finish());
    REQUIRE(sums.size() == 6);
    for (std::size_t i = 0; i < sums.size(); ++i) {
        const auto chunk = std::string_view(bytes).substr(i * checkpoint::ChunkSums::chunk,
                                                          checkpoint::ChunkSums::chunk);
        CHECK(sums[i] == checkpoint::crc32c(chunk));
        CHECK(sums[i] == ~checkpoint::crc::by_tables(~0U, chunk.data(), chunk.size()));
    }
}
