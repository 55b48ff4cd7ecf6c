// SPDX-License-Identifier: Apache-2.0
/// @file
/// Structs and enums that BOOST_DESCRIBE_STRUCT and BOOST_DESCRIBE_ENUM describe; none before Boost
/// 1.77. Cost tier 1: Boost.Describe, which Boost.JSON includes.
#pragma once

#include <boost/version.hpp>

#include <type_traits>

#if BOOST_VERSION >= 107700
#include <boost/describe/enumerators.hpp>
#include <boost/describe/members.hpp>
#include <boost/describe/modifiers.hpp>
#include <boost/mp11/algorithm.hpp>

namespace rtrain::detail {

template <class T>
concept Described = std::is_class_v<T> && requires {
    typename boost::describe::describe_members<T, boost::describe::mod_public>;
};

template <class T>
concept DescribedEnum = std::is_enum_v<T> && requires {
    typename boost::describe::describe_enumerators<T>;
};

/// Calls `visit(name, pointer)` for each public data member, those of described bases first.
template <Described T>
constexpr void for_each_member(auto visit) {
    using Members = boost::describe::describe_members<T, boost::describe::mod_public |
                                                             boost::describe::mod_inherited>;
    boost::mp11::mp_for_each<Members>([&](auto member) { visit(member.name, member.pointer); });
}

/// Calls `visit(name, value)` for each enumerator.
template <DescribedEnum T>
constexpr void for_each_enumerator(auto visit) {
    boost::mp11::mp_for_each<boost::describe::describe_enumerators<T>>(
        [&](auto enumerator) { visit(enumerator.name, enumerator.value); });
}

} // namespace rtrain::detail

#else

namespace rtrain::detail {

template <class T>
concept Described = false;
template <class T>
concept DescribedEnum = false;
template <Described T>
constexpr void for_each_member(auto visit);
template <DescribedEnum T>
constexpr void for_each_enumerator(auto visit);

} // namespace rtrain::detail

#endif
