// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of LightGBM's C interface: errors, handles, and texts. Without libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/gbdt/lightgbm/functions.hpp>
#include <rtrain/gbdt/names.hpp>
#include <rtrain/gbdt/native_log.hpp>
#include <rtrain/gbdt/row_block.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

namespace rtrain::gbdt::lightgbm {

struct Log {
    static constexpr const char* name = "LightGBM";
};

/// Numbers of types in LightGBM's interface.
enum class Type : int { float32 = 0, float64 = 1, int32 = 2 };

/// The exception of a collective that LightGBM has called (network.hpp), which it reports as text.
inline thread_local std::exception_ptr network_error = nullptr;

/// Throws if a call has failed: the exception of a collective in it, else ModelError [RT-G12] with
/// LightGBM's message.
inline void check(int result, const char* call) {
    if (result == 0) {
        return;
    }
    if (network_error) {
        std::rethrow_exception(std::exchange(network_error, nullptr));
    }
    throw ModelError("RT-G12",
                     detail::concat("LightGBM's ", call, " failed: ", LGBM_GetLastError()));
}

/// Returns a text of unknown length. `get(size, length, buffer)` calls LightGBM.
template <class Get>
[[nodiscard]] std::string text_of(const Get& get, const char* call) {
    std::string text(std::size_t{1} << 16, '\0');
    for (;;) {
        std::int64_t length = 0; // with the terminating null
        check(get(static_cast<std::int64_t>(text.size()), &length, text.data()), call);
        const bool fits = length <= static_cast<std::int64_t>(text.size());
        text.resize(static_cast<std::size_t>(std::max<std::int64_t>(length, 1) - (fits ? 1 : 0)));
        if (fits) {
            return text;
        }
    }
}

/// Returns names. `get(count, found, size, needed, buffers)` calls LightGBM.
template <class Get>
[[nodiscard]] std::vector<std::string> names_of(const Get& get, const char* call) {
    int count = 0;
    std::size_t longest = 0;
    check(get(0, &count, 0, &longest, nullptr), call);
    std::vector<std::string> names(static_cast<std::size_t>(count), std::string(longest, '\0'));
    std::vector<char*> buffers;
    for (std::string& name : names) {
        buffers.push_back(name.data());
    }
    check(get(count, &count, longest, &longest, buffers.data()), call);
    for (std::string& name : names) {
        name.resize(std::min(name.find('\0'), name.size()));
    }
    return names;
}

/// The names of all parameters, and for each alias the name that it stands for.
[[nodiscard]] inline std::vector<std::pair<std::string, std::string>> parameter_names() {
    const auto known = json::parse(text_of(LGBM_DumpParamAliases, "LGBM_DumpParamAliases"));
    std::vector<std::pair<std::string, std::string>> names;
    for (const auto& parameter : known.as_object()) {
        const std::string name = parameter.key();
        names.emplace_back(name, name);
        for (const auto& alias : parameter.value().as_array()) {
            names.emplace_back(std::string(alias.as_string()), name);
        }
    }
    return names;
}

/// Call first on each thread that uses LightGBM. Throws ConfigError [RT-G1].
inline void begin() {
    // LightGBM does not report its version, but has this function since 4.2.
    const bool is_new = ::dlsym(RTLD_DEFAULT, "LGBM_SetMaxThreads") != nullptr;
    require_version("LightGBM", "lightgbm", is_new ? std::array{4, 3} : std::array{4, 1}, {4, 3});
    check(LGBM_RegisterLogCallback(&NativeLog<Log>::write), "LGBM_RegisterLogCallback");
}

/// The text in which LightGBM takes parameters.
[[nodiscard]] inline std::string joined(const Parameters& parameters) {
    std::string text;
    for (const auto& [name, value] : parameters) {
        text += (text.empty() ? "" : " ") + name + "=" + value;
    }
    return text;
}

} // namespace rtrain::gbdt::lightgbm
