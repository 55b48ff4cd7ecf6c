// SPDX-License-Identifier: Apache-2.0
/// @file
/// Functions whose second parameter is their configuration: Config, or a struct. `First` is the
/// type of their first parameter. Cost tier 1: Boost.JSON and Boost.Describe.
#pragma once

#include <rtrain/config/run_info.hpp>
#include <rtrain/config/typed_config.hpp>

#include <concepts>
#include <type_traits>
#include <utility>

namespace rtrain::detail {

template <class R, class A, class B>
std::type_identity<std::remove_cvref_t<B>> second_parameter(R (*function)(A, B));
template <class R, class C, class A, class B>
std::type_identity<std::remove_cvref_t<B>> second_parameter(R (C::*function)(A, B));
template <class R, class C, class A, class B>
std::type_identity<std::remove_cvref_t<B>> second_parameter(R (C::*function)(A, B) const);

/// Finds the second parameter of a function, of a call operator, or of one that is a template, such
/// as that of `[](auto& worker, const Hyper& hyper)`.
template <class F, class First>
[[nodiscard]] constexpr auto find_config_parameter() {
    if constexpr (requires(F function) { second_parameter(function); }) {
        return decltype(second_parameter(std::declval<F>())){};
    } else if constexpr (requires { second_parameter(&F::operator()); }) {
        return decltype(second_parameter(&F::operator())){};
    } else if constexpr (requires { second_parameter(&F::template operator()<First>); }) {
        return decltype(second_parameter(&F::template operator()<First>)){};
    } else {
        return std::type_identity<void>{};
    }
}
template <class F, class First>
using ConfigParameter = typename decltype(find_config_parameter<std::decay_t<F>, First>())::type;

/// `f(first, hyper)`. Also true for a struct that is not described, which fails with RT-C165.
template <class F, class First>
concept TypedFunction =
    !std::invocable<F&, First&, const Config&> && std::is_class_v<ConfigParameter<F, First>> &&
    std::invocable<F&, First&, ConfigParameter<F, First>> &&
    (Described<ConfigParameter<F, First>> || !std::invocable<F&, First&>);

/// `f(first, config)`, `f(first, hyper)` or `f(first)`.
template <class F, class First>
concept ConfiguredFunction = std::invocable<F&, First&, const Config&> || TypedFunction<F, First> ||
    std::invocable<F&, First&>;

/// Calls such a function.
template <class F, class First>
requires ConfiguredFunction<F, First>
decltype(auto) call_with_config(F& function, First& first, const Config& config) {
    if constexpr (TypedFunction<F, First>) {
        return function(first, from_config<ConfigParameter<F, First>>(config));
    } else if constexpr (std::invocable<F&, First&, const Config&>) {
        return function(first, config);
    } else {
        return function(first);
    }
}

/// Returns the configuration that a function receives: for a struct, with all its members. Throws
/// ConfigError [RT-C167, RT-C168] if `config` does not match the struct.
template <class F, class First>
[[nodiscard]] Config config_for(const Config& config) {
    if constexpr (TypedFunction<F, First>) {
        return to_config(from_config<ConfigParameter<F, First>>(config));
    } else {
        return config;
    }
}
using ConfigFor = Config (*)(const Config& config);

} // namespace rtrain::detail
