// SPDX-License-Identifier: Apache-2.0
/// @file
/// Arguments of scripts by their names in Python.
#pragma once

#include <rtrain/model/script/values.hpp>

#include <ATen/core/ivalue.h>

#include <string>
#include <type_traits>
#include <utility>

namespace rtrain {

/// An argument that a script gets by its name: `model(x, rtrain::named("scale", 2.0))`. Arguments
/// without a value have the script's defaults.
struct NamedArgument {
    std::string name;  ///< in the schema
    c10::IValue value; ///< converted
};

/// Gives an argument of a script by its name.
template <script::Convertible T>
[[nodiscard]] NamedArgument named(std::string name, const T& value) {
    return {std::move(name), script::Value<std::remove_cvref_t<T>>::make(value)};
}

} // namespace rtrain
