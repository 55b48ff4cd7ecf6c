// SPDX-License-Identifier: Apache-2.0
/// @file
/// Url: the address of an HTTP server, and percent encoding. Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>

#include <algorithm>
#include <string>
#include <string_view>

namespace rtrain::track {

struct Url {
    std::string host;
    std::string port;
    std::string path{}; ///< "/some/place", or nothing
    bool encrypted = false;

    /// The value of a request's Host header.
    [[nodiscard]] std::string authority() const {
        const bool is_ipv6 = host.find(':') != std::string::npos;
        return (is_ipv6 ? '[' + host + ']' : host) + (port == usual_port() ? "" : ':' + port);
    }
    [[nodiscard]] std::string text() const {
        return (encrypted ? "https://" : "http://") + authority() + path;
    }
    [[nodiscard]] const char* usual_port() const noexcept { return encrypted ? "443" : "80"; }
};

namespace internal {

[[nodiscard]] inline bool is_graphic(char letter) noexcept {
    return letter > ' ' && letter < 0x7f;
}

/// Throws ConfigError [RT-V60]. Does not show the text, which may contain a password.
[[noreturn]] inline void refuse_url(const char* what) {
    throw ConfigError("RT-V60", rtrain::detail::concat("the URI of a tracking server ", what,
                                                       "; expected http://host:port or "
                                                       "https://host"));
}

} // namespace internal

/// Throws ConfigError [RT-V60].
[[nodiscard]] inline Url parse_url(std::string_view text) {
    Url url;
    url.encrypted = text.starts_with("https://");
    const std::string_view scheme = url.encrypted ? "https://" : "http://";
    if (!text.starts_with(scheme)) {
        internal::refuse_url("does not begin with http:// or https://");
    }
    if (!std::ranges::all_of(text, internal::is_graphic)) {
        internal::refuse_url("has a space or a character that is not ASCII");
    }
    if (text.find_first_of("?#") != std::string_view::npos) {
        internal::refuse_url("has a query");
    }
    text = text.substr(scheme.size());
    const std::size_t slash = std::min(text.find('/'), text.size());
    std::string_view authority = text.substr(0, slash);
    if (authority.find('@') != std::string_view::npos) {
        internal::refuse_url("contains a user name and password, which would be stored with "
                             "the run: set "
                             "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD");
    }
    url.path = text.substr(slash);
    url.path.erase(url.path.find_last_not_of('/') + 1);
    const bool is_ipv6 = authority.starts_with('[');
    const std::size_t end = std::min(authority.find(is_ipv6 ? ']' : ':'), authority.size());
    url.host = authority.substr(is_ipv6 ? 1 : 0, is_ipv6 ? end - 1 : end);
    authority.remove_prefix(std::min(end + (is_ipv6 ? 1 : 0), authority.size()));
    url.port = authority.empty()          ? url.usual_port()
               : authority.front() == ':' ? authority.substr(1)
                                          : "";
    const auto is_digit = [](char letter) { return letter >= '0' && letter <= '9'; };
    if (url.host.empty() || url.port.empty() || url.port.size() > 5 ||
        !std::ranges::all_of(url.port, is_digit)) {
        internal::refuse_url("has no host, or a port that is not a number");
    }
    return url;
}

/// `text` as in a query.
[[nodiscard]] inline std::string percent_encoded(std::string_view text) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    constexpr std::string_view unreserved = "-._~";
    std::string encoded;
    for (const char letter : text) {
        const auto byte = static_cast<unsigned char>(letter);
        const bool is_plain =
            (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
            (letter >= 'A' && letter <= 'Z') || unreserved.find(letter) != std::string_view::npos;
        encoded += is_plain ? std::string(1, letter)
                            : std::string{'%', digits[byte >> 4U], digits[byte & 15U]};
    }
    return encoded;
}

} // namespace rtrain::track
