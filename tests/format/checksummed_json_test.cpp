// SPDX-License-Identifier: Apache-2.0

#include <rtrain/config/config.hpp>
#include <rtrain/format/checksummed_json.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <stdexcept>
#include <string>

using namespace rtrain;

TEST_CASE("SealedJson.finds_every_change") {
    for (const Config& object : {Config{}, Config{{"a", 1}, {"b", {{"c", "crc32c"}}}}}) {
        const std::string good = checkpoint::with_checksum(object);
        CHECK(checkpoint::parse_checked(good) == object);
        for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
            std::string bad = good;
            bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
            CAPTURE(bad);
            CHECK_THROWS_AS((void)checkpoint::parse_checked(bad), std::invalid_argument);
        }
        for (std::size_t size = 0; size < good.size(); ++size) {
            CHECK_THROWS_AS((void)checkpoint::parse_checked(good.substr(0, size)),
                            std::invalid_argument);
        }
    }
}
