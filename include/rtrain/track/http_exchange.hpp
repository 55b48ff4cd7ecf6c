// SPDX-License-Identifier: Apache-2.0
/// @file
/// http_exchange(): one request to an HTTP server and its answer, on a connection of its own. A
/// server may be away, slow, endless or no HTTP server: it costs a bounded time and memory.
/// Included by definitions only: Beast takes long to compile.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/track/url.hpp>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace rtrain::track {

struct HttpRequest {
    bool posts = false; ///< `body`, which is JSON
    std::string target; ///< behind the server's path
    std::string body{};
    std::string authorization{}; ///< the header's value; "" for none
};

struct HttpAnswer {
    unsigned status = 0;
    std::string body;
    std::string retry_after; ///< the header's value
};

namespace detail {

class HttpExchange {
public:
    /// For the whole of it.
    static constexpr std::chrono::seconds time_limit{30};
    static constexpr std::uint64_t largest_body = std::uint64_t{8} << 20;

    HttpExchange(const Url& server, HttpRequest request)
        : server_(server), request_(request.posts ? Http::verb::post : Http::verb::get,
                                    server.path + request.target, 11, std::move(request.body)) {
        request_.set(Http::field::host, server.authority());
        request_.set(Http::field::user_agent, "rtrain");
        request_.set(Http::field::connection, "close");
        if (request.posts) {
            request_.set(Http::field::content_type, "application/json");
        }
        if (!request.authorization.empty()) {
            request_.set(Http::field::authorization, request.authorization);
        }
        request_.prepare_payload();
        parser_.body_limit(largest_body);
    }

    /// Throws Error [RT-V61].
    [[nodiscard]] HttpAnswer run() {
        resolver_.async_resolve(server_.host, server_.port, [this](Code code, auto addresses) {
            if (go_on(code, "it cannot be found")) {
                connect(std::move(addresses));
            }
        });
        io_.run_for(time_limit);
        if (!done_ && failed_.empty()) {
            failed_ =
                rtrain::detail::concat("it has not answered within ", time_limit.count(), " s");
        }
        if (!failed_.empty()) {
            throw Error("RT-V61",
                        rtrain::detail::concat("no answer from ", server_.text(), ": ", failed_));
        }
        auto& answer = parser_.get();
        return {.status = answer.result_int(),
                .body = std::move(answer.body()),
                .retry_after = std::string(answer[Http::field::retry_after])};
    }

private:
    struct Http { // names of boost::beast::http
        using verb = boost::beast::http::verb;
        using field = boost::beast::http::field;
    };
    using Code = boost::system::error_code;
    using Tcp = boost::asio::ip::tcp;
    using Body = boost::beast::http::string_body;

    bool go_on(const Code& code, const char* what) {
        if (code) {
            failed_ = rtrain::detail::concat(what, ": ", code.message());
        }
        return !code;
    }

    void connect(Tcp::resolver::results_type addresses) {
        boost::asio::async_connect(socket_, addresses, [this](Code code, const auto& /*end*/) {
            if (go_on(code, "it cannot be reached")) {
                write();
            }
        });
    }

    void write() {
        boost::beast::http::async_write(socket_, request_, [this](Code code, std::size_t) {
            if (go_on(code, "it takes no request")) {
                read();
            }
        });
    }

    void read() {
        boost::beast::http::async_read(socket_, buffer_, parser_, [this](Code code, std::size_t) {
            done_ = go_on(code, "what it has sent is no whole answer");
        });
    }

    const Url& server_;
    boost::beast::http::request<Body> request_;
    boost::beast::http::response_parser<Body> parser_;
    boost::beast::flat_buffer buffer_;
    boost::asio::io_context io_{1};
    Tcp::resolver resolver_{io_};
    Tcp::socket socket_{io_};
    std::string failed_;
    bool done_ = false;
};

} // namespace detail

/// Throws Error [RT-V61] when there is no whole answer, of whatever status.
[[nodiscard]] inline HttpAnswer http_exchange(const Url& server, HttpRequest request) {
    return detail::HttpExchange(server, std::move(request)).run();
}

} // namespace rtrain::track
