// SPDX-License-Identifier: Apache-2.0
/// @file
/// Overloaded: a visitor for std::visit() made of lambdas, usually one per alternative. Cost tier
/// 0: std only.
#pragma once

namespace rtrain::detail {

template <class... Lambdas>
struct Overloaded : Lambdas... {
    using Lambdas::operator()...;
};
template <class... Lambdas>
Overloaded(Lambdas...) -> Overloaded<Lambdas...>;

} // namespace rtrain::detail
