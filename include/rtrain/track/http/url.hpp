// SPDX-License-Identifier: Apache-2.0
/// @file
/// Url: the address of an HTTP server. Cost tier 0: std only.
#pragma once

#include <rtrain/base/compiled.hpp>

#include <string>
#include <string_view>

namespace rtrain::track {

struct Url {
    std::string host; ///< an IPv6 address has no brackets
    std::string port;
    std::string path{}; ///< "/some/place", or nothing
    bool encrypted = false;
    std::string host_and_port{}; ///< without the scheme's default port
    bool is_loopback = false;    ///< true if requests do not leave this machine

    /// The value of a request's Host header.
    [[nodiscard]] const std::string& authority() const noexcept { return host_and_port; }
    [[nodiscard]] std::string text() const {
        return (encrypted ? "https://" : "http://") + host_and_port + path;
    }
};

/// Throws ConfigError [RT-V60].
[[nodiscard]] Url parse_url(std::string_view text);

} // namespace rtrain::track

#ifndef RTRAIN_COMPILED
#include <rtrain/track/http/url_definitions.hpp>
#endif
