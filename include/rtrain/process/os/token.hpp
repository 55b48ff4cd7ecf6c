// SPDX-License-Identifier: Apache-2.0
/// @file
/// Unguessable secrets.
#pragma once

#include <rtrain/base/error.hpp>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include <sys/random.h>

namespace rtrain::launch::control {

/// `bytes` random bytes in hexadecimal digits. Throws LaunchError [RT-L7].
[[nodiscard]] inline std::string random_text(std::size_t bytes) {
    std::string raw(bytes, '\0');
    if (::getrandom(raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size())) {
        throw LaunchError("RT-L7",
                          detail::concat("cannot get random bytes: ", std::strerror(errno)));
    }
    std::string text;
    for (const char c : raw) {
        constexpr std::string_view digits = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(c);
        text += {digits[byte >> 4U], digits[byte & 15U]};
    }
    return text;
}

/// Overwrites a secret and the rest of its memory, so that no core file contains it.
inline void wipe(std::string& secret) noexcept {
    secret.resize(secret.capacity());
    ::explicit_bzero(secret.data(), secret.size());
    secret.clear();
}

/// Takes equally long for any difference.
[[nodiscard]] inline bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept {
    if (a.size() != b.size()) {
        return false;
    }
    volatile unsigned different = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        different = different | static_cast<unsigned>(a[i] ^ b[i]);
    }
    return different == 0;
}

} // namespace rtrain::launch::control
