// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door url.hpp: Boost.URL.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/track/http/loopback.hpp>
#include <rtrain/track/http/url.hpp>

#include <boost/url/parse.hpp>
#include <boost/url/url.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace rtrain::track {

namespace internal {

/// Throws ConfigError [RT-V60]. Does not show the text, which may contain a password.
[[noreturn]] inline void refuse_url(const char* what) {
    throw ConfigError("RT-V60", rtrain::detail::concat("the URI of a tracking server ", what,
                                                       "; expected http://host:port or "
                                                       "https://host"));
}

} // namespace internal

RTRAIN_DOOR Url parse_url(std::string_view text) {
    namespace urls = boost::urls;
    const auto parsed = urls::parse_uri(text);
    const auto scheme = parsed ? parsed->scheme_id() : urls::scheme::none;
    // Boost 1.81 splits the host 1.2.3.4.example.org into an address and a path.
    const bool has_path_in_host =
        parsed && !parsed->encoded_path().empty() && !parsed->is_path_absolute();
    if ((scheme != urls::scheme::http && scheme != urls::scheme::https) || has_path_in_host) {
        internal::refuse_url("is not valid, or does not begin with http:// or https://");
    }
    if (parsed->has_query() || parsed->has_fragment()) {
        internal::refuse_url("has a query");
    }
    if (parsed->has_userinfo()) {
        internal::refuse_url("contains a user name and password, which would be stored with "
                             "the run: set MLFLOW_TRACKING_USERNAME and "
                             "MLFLOW_TRACKING_PASSWORD");
    }
    if (parsed->encoded_host().empty() || (parsed->has_port() && parsed->port_number() == 0)) {
        internal::refuse_url("has no host, or a port that is not from 1 to 65535");
    }
    urls::url url(*parsed);
    const bool encrypted = scheme == urls::scheme::https;
    const std::string default_port = encrypted ? "443" : "80";
    if (url.port() == default_port) {
        url.remove_port();
    }
    const auto text_of = [](const auto& view) { return std::string(view.data(), view.size()); };
    std::string path = text_of(url.encoded_path());
    path.erase(path.find_last_not_of('/') + 1);
    return {.host = url.host_address(),
            .port = url.has_port() ? text_of(url.port()) : default_port,
            .path = std::move(path),
            .encrypted = encrypted,
            .host_and_port = text_of(url.encoded_host_and_port()),
            .is_loopback = is_loopback(url.authority())};
}

} // namespace rtrain::track
