// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stacks of hung ranks with the names of all functions, and their source lines, by elfutils'
/// libdw. Part of the component stacktrace: include it in one source, and link rtrain::stacktrace.
#pragma once

#include <rtrain/process/stack/symbols.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <elfutils/libdwfl.h>
#include <unistd.h>

namespace rtrain::launch::internal {

[[nodiscard]] inline std::string source_of(Dwfl* session, std::uintptr_t address) {
    int line = 0;
    Dwfl_Line* const place = dwfl_getsrc(session, address);
    const char* const file = place != nullptr
                                 ? dwfl_lineinfo(place, nullptr, &line, nullptr, nullptr, nullptr)
                                 : nullptr;
    return file != nullptr ? std::string(" at ") + file + ':' + std::to_string(line) : "";
}

/// Uses debug information on this machine only: a download could last longer than the hang's limit.
[[nodiscard]] inline std::vector<std::string>
symbols_by_libdw(const std::vector<std::uintptr_t>& addresses) {
    static const Dwfl_Callbacks callbacks{.find_elf = dwfl_linux_proc_find_elf,
                                          .find_debuginfo = dwfl_build_id_find_debuginfo,
                                          .section_address = nullptr,
                                          .debuginfo_path = nullptr};
    const std::unique_ptr<Dwfl, decltype(&dwfl_end)> session(dwfl_begin(&callbacks), dwfl_end);
    if (session == nullptr || dwfl_linux_proc_report(session.get(), ::getpid()) != 0 ||
        dwfl_report_end(session.get(), nullptr, nullptr) != 0) {
        return control::exported_symbols(addresses);
    }
    std::vector<std::string> texts;
    for (const std::uintptr_t address : addresses) {
        Dwfl_Module* const module = dwfl_addrmodule(session.get(), address);
        const char* const symbol =
            module != nullptr ? dwfl_module_addrname(module, address) : nullptr;
        texts.push_back(control::frame_text(symbol, address) + source_of(session.get(), address));
    }
    return texts;
}

inline const bool has_libdw = [] {
    symbolizer = symbols_by_libdw;
    return true;
}();

} // namespace rtrain::launch::internal
