// SPDX-License-Identifier: Apache-2.0
// To be preloaded: the program begins with the environment's locale, as after
// std::locale::global(std::locale("")), or with one that groups digits where that is missing.
#include <locale>
#include <stdexcept>
#include <string>

namespace {

struct Grouping : std::numpunct<char> {
    [[nodiscard]] std::string do_grouping() const override { return "\3"; }
    [[nodiscard]] char do_thousands_sep() const override { return '.'; }
    [[nodiscard]] char do_decimal_point() const override { return ','; }
};

[[gnu::constructor]] void set_locale() {
    try {
        std::locale::global(std::locale(""));
    } catch (const std::runtime_error&) {
        std::locale::global(std::locale(std::locale::classic(), new Grouping));
    }
}

} // namespace
