// SPDX-License-Identifier: Apache-2.0
/// @file
/// each_tensor(): visits the tensors in a batch, or in what a model returns.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <iterator>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace rtrain::detail {

/// Converts to the type of any member.
struct Anything {
    template <class U>
    operator U() const; // NOLINT(google-explicit-constructor)
};
/// Converts to a base of T only.
template <class T>
struct AnyBaseOf {
    template <class U>
    requires(std::is_base_of_v<U, T> && !std::same_as<U, T>)
    operator U() const; // NOLINT(google-explicit-constructor)
};

/// Counts the members of an aggregate of type T, up to 16; 0 where structured bindings cannot name
/// them. Each may be initialized from `{}`, also an array, which is one member.
template <class T>
[[nodiscard]] consteval std::size_t member_count() {
    if constexpr (requires { T{AnyBaseOf<T>{}}; }) {
        return 0; // members of a base and of the class are not bound together
    }
#define RTRAIN_COUNT(count, ...)                                                                   \
    else if constexpr (requires { T{__VA_ARGS__}; }) {                                             \
        return requires {                                                                          \
            T{__VA_ARGS__, Anything{}};                                                            \
        }                                                                                          \
        ? 0 : count;                                                                               \
    }
    RTRAIN_COUNT(16, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
    RTRAIN_COUNT(15, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
    RTRAIN_COUNT(14, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
    RTRAIN_COUNT(13, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
    RTRAIN_COUNT(12, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
    RTRAIN_COUNT(11, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
    RTRAIN_COUNT(10, {}, {}, {}, {}, {}, {}, {}, {}, {}, {})
    RTRAIN_COUNT(9, {}, {}, {}, {}, {}, {}, {}, {}, {})
    RTRAIN_COUNT(8, {}, {}, {}, {}, {}, {}, {}, {})
    RTRAIN_COUNT(7, {}, {}, {}, {}, {}, {}, {})
    RTRAIN_COUNT(6, {}, {}, {}, {}, {}, {})
    RTRAIN_COUNT(5, {}, {}, {}, {}, {})
    RTRAIN_COUNT(4, {}, {}, {}, {})
    RTRAIN_COUNT(3, {}, {}, {})
    RTRAIN_COUNT(2, {}, {})
    RTRAIN_COUNT(1, {})
#undef RTRAIN_COUNT
    else {
        return 0;
    }
}

/// Calls `use` with the members of an aggregate.
template <class T, class Use>
void with_members(T& value, const Use& use) {
    constexpr std::size_t count = member_count<std::remove_const_t<T>>();
    if constexpr (count == 0) {
        return;
    }
#define RTRAIN_MEMBERS(number, ...)                                                                \
    else if constexpr (count == number) {                                                          \
        auto& [__VA_ARGS__] = value;                                                               \
        use(__VA_ARGS__);                                                                          \
    }
    RTRAIN_MEMBERS(1, a)
    RTRAIN_MEMBERS(2, a, b)
    RTRAIN_MEMBERS(3, a, b, c)
    RTRAIN_MEMBERS(4, a, b, c, d)
    RTRAIN_MEMBERS(5, a, b, c, d, e)
    RTRAIN_MEMBERS(6, a, b, c, d, e, f)
    RTRAIN_MEMBERS(7, a, b, c, d, e, f, g)
    RTRAIN_MEMBERS(8, a, b, c, d, e, f, g, h)
    RTRAIN_MEMBERS(9, a, b, c, d, e, f, g, h, i)
    RTRAIN_MEMBERS(10, a, b, c, d, e, f, g, h, i, j)
    RTRAIN_MEMBERS(11, a, b, c, d, e, f, g, h, i, j, k)
    RTRAIN_MEMBERS(12, a, b, c, d, e, f, g, h, i, j, k, l)
    RTRAIN_MEMBERS(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
    RTRAIN_MEMBERS(14, a, b, c, d, e, f, g, h, i, j, k, l, m, n)
    RTRAIN_MEMBERS(15, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
    RTRAIN_MEMBERS(16, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
#undef RTRAIN_MEMBERS
}

template <class T>
concept TupleLike = requires {
    std::tuple_size<T>::value;
};
template <class T>
concept VariantLike = requires {
    std::variant_size<T>::value;
};
/// An optional, or a smart pointer.
template <class T>
concept MayPointTo = std::is_class_v<T> && requires(T& value) {
    static_cast<bool>(value);
    *value;
};
template <class T>
using ElementOf = decltype(*std::begin(std::declval<T&>()));
/// Elements of class types; not a path, whose elements are paths.
template <class T>
concept ContainsObjects = std::forward_iterator<decltype(std::begin(std::declval<T&>()))> &&
    std::is_lvalue_reference_v<ElementOf<T>> &&
    std::is_class_v<std::remove_reference_t<ElementOf<T>>> &&
    !std::same_as<std::remove_cvref_t<ElementOf<T>>, std::remove_const_t<T>>;

/// Specialized for types that are visited differently: `static void visit(T& value, const Visit&)`.
template <class T>
struct TensorsWithin;

/// Calls `visit` for each tensor in `value`: itself, or those in pairs, tuples, optionals,
/// variants, smart pointers, containers and aggregates, also within each other; those of other
/// classes where they have a member `each_tensor(visit)`.
template <class T, class Visit>
void each_tensor(T& value, const Visit& visit) {
    using Value = std::remove_const_t<T>;
    if constexpr (std::same_as<Value, at::Tensor>) {
        visit(value);
    } else if constexpr (requires { sizeof(TensorsWithin<Value>); }) {
        TensorsWithin<Value>::visit(value, visit);
    } else if constexpr (requires { value.each_tensor(visit); }) {
        value.each_tensor(visit);
    } else if constexpr (requires { value.each_column(visit); }) { // of a Batch
        value.each_column(visit);
    } else if constexpr (TupleLike<Value>) {
        std::apply([&](auto&... parts) { (each_tensor(parts, visit), ...); }, value);
    } else if constexpr (VariantLike<Value>) {
        std::visit([&](auto& held) { each_tensor(held, visit); }, value);
    } else if constexpr (MayPointTo<T>) {
        if (value) {
            each_tensor(*value, visit);
        }
    } else if constexpr (ContainsObjects<T>) {
        for (auto& element : value) {
            each_tensor(element, visit);
        }
    } else if constexpr (requires {
                             value.key();
                             value.value();
                         }) { // of torch::OrderedDict
        each_tensor(value.value(), visit);
    } else if constexpr (std::is_aggregate_v<Value> && std::is_class_v<Value>) {
        with_members(value, [&](auto&... members) { (each_tensor(members, visit), ...); });
    } else if constexpr (std::is_array_v<Value>) {
        for (auto& element : value) {
            each_tensor(element, visit);
        }
    } else if constexpr (requires { value.data; }) { // of torch::data::Example
        each_tensor(value.data, visit);
        if constexpr (requires { value.target; }) {
            each_tensor(value.target, visit);
        }
    }
}

} // namespace rtrain::detail
