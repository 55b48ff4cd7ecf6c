// SPDX-License-Identifier: Apache-2.0
// Names of enumerations.
#include <doctest/doctest.h>

#include <rtrain/base/name_table.hpp>

namespace {

enum class Color : unsigned char { red, blue };
enum Size : int { small };

constexpr auto color_names =
    rtrain::detail::name_table<Color>({{Color::red, "red"}, {Color::blue, "blue"}});

// A table that lacks one of these does not compile.
static_assert(rtrain::detail::is_enumerator<Color::blue>());
static_assert(!rtrain::detail::is_enumerator<static_cast<Color>(2)>());
static_assert(rtrain::detail::is_enumerator<small>());
static_assert(!rtrain::detail::is_enumerator<static_cast<Size>(1)>());

} // namespace

TEST_CASE("NameTable.names_are_written_and_parsed") {
    CHECK(color_names[Color::blue] == "blue");
    CHECK(color_names.parse("red") == Color::red);
    CHECK_FALSE(color_names.parse("Red").has_value());
    CHECK_FALSE(color_names.parse("").has_value());
}
