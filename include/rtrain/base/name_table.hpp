// SPDX-License-Identifier: Apache-2.0
/// @file
/// NameTable: the names of an enumeration in files and messages, for writing and parsing. Cost tier
/// 0: std only.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace rtrain::detail {

/// True if the enumeration has an enumerator with that value. Compilers print other values as a
/// cast, such as `(Color)3`.
template <auto value>
[[nodiscard]] consteval bool is_enumerator() {
    const std::string_view function = __PRETTY_FUNCTION__;
    const char after = function[function.rfind(')') + 1];
    return after < '0' || after > '9';
}

template <class Enum>
struct Named {
    Enum value;
    std::string_view name;
};

/// Created by name_table().
template <class Enum, std::size_t size>
class NameTable {
    static_assert(!is_enumerator<static_cast<Enum>(size)>(), "an enumerator has no name");

public:
    consteval explicit NameTable(const Named<Enum> (&entries)[size]) {
        for (std::size_t i = 0; i < size; ++i) {
            if (static_cast<std::size_t>(entries[i].value) != i) {
                throw "the entries must be in the order of the enumerators, which start at 0";
            }
            names_[i] = entries[i].name;
        }
    }

    [[nodiscard]] constexpr std::string_view operator[](Enum value) const noexcept {
        return names_[static_cast<std::size_t>(value)];
    }
    /// Returns the value with that name; nullopt for an unknown name.
    [[nodiscard]] constexpr std::optional<Enum> parse(std::string_view name) const noexcept {
        for (std::size_t i = 0; i < size; ++i) {
            if (names_[i] == name) {
                return static_cast<Enum>(i);
            }
        }
        return std::nullopt;
    }

private:
    std::array<std::string_view, size> names_{};
};

/// Does not compile unless it names each enumerator, in order:
/// @code
/// constexpr auto color_names = name_table<Color>({{Color::red, "red"}, {Color::blue, "blue"}});
/// @endcode
template <class Enum, std::size_t size>
[[nodiscard]] consteval NameTable<Enum, size> name_table(const Named<Enum> (&entries)[size]) {
    return NameTable<Enum, size>(entries);
}

} // namespace rtrain::detail
