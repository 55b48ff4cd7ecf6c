// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names of types and symbols as people write them. Cost tier 0: std only.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <typeinfo>

#include <cxxabi.h>

namespace rtrain::detail {

/// As it is, if it is no mangled name.
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

} // namespace rtrain::detail
