// SPDX-License-Identifier: Apache-2.0
/// @file
/// Readable names of types and symbols. Cost tier 0: std only.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>

#include <cxxabi.h>

namespace rtrain::detail {

/// Returns `symbol` unchanged if it is not a mangled name.
[[nodiscard]] inline std::string demangled(const char* symbol) {
    int status = -1;
    const std::unique_ptr<char, void (*)(void*)> name(
        abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
    return status == 0 ? name.get() : symbol;
}

template <class T>
[[nodiscard]] std::string type_name() {
    return demangled(typeid(T).name());
}

/// Returns the name of a training function's type, comparable between programs: a lambda is named
/// by its location, without enclosing template arguments. Empty for functions, function pointers
/// and std::function, whose types only name their parameters.
template <class F>
[[nodiscard]] std::string function_type_name() {
    const std::string whole = type_name<F>();
    if (std::is_function_v<std::remove_pointer_t<F>> || whole.starts_with("std::function<")) {
        return "";
    }
    if (whole.find("{lambda(") == std::string::npos && whole.find("$_") == std::string::npos) {
        return whole;
    }
    std::string name;
    int depth = 0; // of brackets
    for (const char c : whole) {
        depth += c == '<' || c == '(' ? 1 : 0;
        name += depth == 0 ? std::string(1, c) : "";
        depth -= c == '>' || c == ')' ? 1 : 0;
    }
    return name;
}

} // namespace rtrain::detail
