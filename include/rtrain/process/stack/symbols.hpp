// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names of the functions on a stack. Without the component stacktrace
/// (process/stack/stacktrace.hpp) they come from the dynamic linker, which knows exported functions
/// only; for the others there is the location, for addr2line. Cost tier 0: std only.
#pragma once

#include <rtrain/base/type_name.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <dlfcn.h>

namespace rtrain::launch {

namespace control {

[[nodiscard]] inline std::string hexadecimal(std::uintptr_t number) {
    std::string digits;
    do {
        digits.insert(digits.begin(), "0123456789abcdef"[number % 16]);
        number /= 16;
    } while (number > 0);
    return "0x" + digits;
}

/// For example "train(Net&) in /home/me/program+0x1234"; without a symbol only the location.
[[nodiscard]] inline std::string frame_text(const char* symbol, std::uintptr_t address) {
    Dl_info place{};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of a stack frame
    if (::dladdr(reinterpret_cast<void*>(address), &place) == 0 || place.dli_fname == nullptr) {
        return hexadecimal(address);
    }
    symbol = symbol != nullptr ? symbol : place.dli_sname;
    const std::string location =
        place.dli_fname +
        ('+' + hexadecimal(address - reinterpret_cast<std::uintptr_t>(place.dli_fbase)));
    return symbol != nullptr ? detail::demangled(symbol) + " in " + location : location;
}

[[nodiscard]] inline std::vector<std::string>
exported_symbols(const std::vector<std::uintptr_t>& addresses) {
    std::vector<std::string> texts;
    for (const std::uintptr_t address : addresses) {
        texts.push_back(frame_text(nullptr, address));
    }
    return texts;
}

} // namespace control

/// Returns a text for each address.
using Symbolizer = std::vector<std::string> (*)(const std::vector<std::uintptr_t>& addresses);

/// The one that stacks are printed with.
inline Symbolizer symbolizer = control::exported_symbols;

} // namespace rtrain::launch
