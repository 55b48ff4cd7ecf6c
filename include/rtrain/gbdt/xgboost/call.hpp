// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of XGBoost's C interface: errors, handles, and descriptions of arrays. Without libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/gbdt/names.hpp>
#include <rtrain/gbdt/native_log.hpp>
#include <rtrain/gbdt/row_block.hpp>
#include <rtrain/gbdt/xgboost/functions.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace rtrain::gbdt::xgboost {

struct Log {
    static constexpr const char* name = "XGBoost";
};

/// XGBoost's message about the last error, without times, places in its source, and stacks.
[[nodiscard]] inline std::string last_error() {
    std::string_view text = XGBGetLastError();
    text = text.substr(0, text.find("\nStack trace"));
    if (const auto place = text.find(".cc:"); text.starts_with('[') && place != text.npos) {
        text.remove_prefix(std::min(text.find(": ", place), text.size() - 2) + 2);
    }
    return std::string(text.substr(0, text.find_last_not_of(" \n") + 1));
}

/// Throws if a call has failed: PeerError [RT-G17] if other ranks have closed their connections,
/// else ModelError [RT-G12] with XGBoost's message.
inline void check(int result, const char* call) {
    if (result == 0) {
        return;
    }
    if (std::string_view(XGBGetLastError()).find("/collective/") != std::string_view::npos) {
        throw PeerError("RT-G17", detail::concat("another rank left while XGBoost's ", call,
                                                 " communicated with it: ", last_error()));
    }
    throw ModelError("RT-G12", detail::concat("XGBoost's ", call, " failed: ", last_error()));
}

/// Call first on each thread that uses XGBoost. Throws ConfigError [RT-G1].
inline void begin() {
    int major = 0;
    int minor = 0;
    int patch = 0;
    XGBoostVersion(&major, &minor, &patch);
    require_version("XGBoost", "xgboost-cpu", {major, minor}, {2, 1});
    check(XGBRegisterLogCallback(&NativeLog<Log>::write), "XGBRegisterLogCallback");
}

template <int (*free)(void*)>
struct FreeHandle {
    void operator()(void* handle) const noexcept { (void)free(handle); }
};
/// Owns a handle.
template <int (*free)(void*)>
using Handle = std::unique_ptr<void, FreeHandle<free>>;

/// NumPy's array interface, by which XGBoost takes arrays.
template <class T>
[[nodiscard]] std::string array_interface(const T* data, std::int64_t rows, std::int64_t columns) {
    constexpr const char* type = std::is_same_v<T, float> ? "<f4" : "<f8";
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
    return detail::concat("{\"data\":[", reinterpret_cast<std::uintptr_t>(data),
                          ",true],\"shape\":[", rows, ',', columns, "],\"typestr\":\"", type,
                          "\",\"version\":3}");
}

/// Calls `set(field, texts, number of texts)` with the names and with the types of features.
template <class Set>
void each_feature_text(const Features& features, const Set& set) {
    std::vector<const char*> names;
    std::vector<const char*> types;
    for (std::size_t i = 0; i < features.size(); ++i) {
        names.push_back(features.names[i].c_str());
        types.push_back(features.categorical[i] ? "c" : "float");
    }
    set("feature_name", names.data(), names.size());
    set("feature_type", types.data(), types.size());
}

} // namespace rtrain::gbdt::xgboost
