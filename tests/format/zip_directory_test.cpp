// SPDX-License-Identifier: Apache-2.0
#include "support/thrown.hpp"

#include <rtrain/format/zip_directory.hpp>
#include <rtrain/storage/file/file.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>

using namespace rtrain;
using test::contains;
using test::error_of;

namespace {

/// "aaaa" and "bbbb" in a zip file, with what its directory says of "b": its place, which is 35,
/// and its size; and the size of "a".
std::string zip_file(std::uint32_t place, std::uint32_t size, std::uint32_t size_of_a = 4) {
    std::string file;
    const auto put = [&](std::uint32_t value, int bytes) {
        for (int i = 0; i < bytes; ++i) {
            file += static_cast<char>(value >> (8 * i) & 0xFFU);
        }
    };
    for (const char name : {'a', 'b'}) {
        file += "PK\3\4" + std::string(22, '\0');
        put(1, 4); // length of the name
        file += std::string(5, name);
    }
    const auto directory = static_cast<std::uint32_t>(file.size());
    for (const char name : {'a', 'b'}) {
        file += "PK\1\2" + std::string(16, '\0');
        put(name == 'a' ? size_of_a : size, 4);
        put(name == 'a' ? size_of_a : size, 4);
        put(1, 2);
        file += std::string(12, '\0');
        put(name == 'a' ? 0 : place, 4);
        file += name;
    }
    const auto bytes = static_cast<std::uint32_t>(file.size()) - directory;
    file += "PK\5\6" + std::string(4, '\0');
    put(2, 2);
    put(2, 2);
    put(bytes, 4);
    put(directory, 4);
    put(0, 2);
    return file;
}

} // namespace

TEST_CASE("Zip.records_lie_apart") {
    CHECK(checkpoint::parse_zip_directory(zip_file(35, 4)).at("b").offset == 66);
    const auto error = [](std::uint32_t place, std::uint32_t size, std::uint32_t size_of_a = 4) {
        return error_of([&] {
            static_cast<void>(checkpoint::parse_zip_directory(zip_file(place, size, size_of_a)));
        });
    };
    CHECK(contains(error(0, 4), "overlaps another"));
    CHECK(contains(error(35, 5), "\"b\" is cut off"));
    CHECK(contains(error(35, 4, 5), "\"b\" overlaps another"));
}
