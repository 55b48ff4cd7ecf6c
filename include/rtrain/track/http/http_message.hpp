// SPDX-License-Identifier: Apache-2.0
/// @file
/// HttpRequest and HttpAnswer, independent of the transport. Cost tier 0: std only.
#pragma once

#include <rtrain/track/http/url.hpp>

#include <filesystem>
#include <functional>
#include <string>

namespace rtrain::track {

struct HttpRequest {
    enum class Method : unsigned char { get, post, put };

    Method method = Method::get;
    std::string target{}; ///< appended to the server's path
    std::string body{};   ///< JSON
    /// Replaces the body by this file's bytes; "" for none.
    std::filesystem::path file{};
    std::string authorization{}; ///< the header's value; "" for none
};

struct HttpAnswer {
    unsigned status = 0;
    std::string body;
    std::string retry_after; ///< the header's value
};

/// Sends a request and waits for its answer, for a bounded time. Throws Error [RT-V61] without a
/// complete answer, of any status; over TLS also [RT-V68].
using HttpSender = std::function<HttpAnswer(const Url& server, const HttpRequest& request)>;

} // namespace rtrain::track
