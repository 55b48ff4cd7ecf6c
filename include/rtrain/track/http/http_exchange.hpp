// SPDX-License-Identifier: Apache-2.0
/// @file
/// http_exchange(): one request to an HTTP server and its answer, on its own connection. Bounded
/// time and memory, even if the server is down, slow, endless or not an HTTP server.
/// Included by definitions and by https.hpp only: Beast is slow to compile.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/track/http/http_message.hpp>
#include <rtrain/track/http/url.hpp>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/file_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::track {
namespace internal {

using Tcp = boost::asio::ip::tcp;
using HttpCode = boost::system::error_code;

/// "no answer from http://host: " and the reason.
[[nodiscard]] inline Error no_answer(const Url& server, const std::string& why,
                                     Error::Code code = "RT-V61") {
    return {code, rtrain::detail::concat("no answer from ", server.text(), ": ", why)};
}

/// Unencrypted.
class PlainConnection {
public:
    PlainConnection(boost::asio::io_context& io, const Url& /*server*/) : socket_(io) {}

    [[nodiscard]] Tcp::socket& socket() noexcept { return socket_; }
    [[nodiscard]] Tcp::socket& stream() noexcept { return socket_; }
    /// Called once the socket is connected. Calls done(std::optional<Error>).
    template <class Done>
    void agree(Done&& done) {
        done(std::nullopt);
    }

private:
    Tcp::socket socket_;
};

template <class Connection>
class HttpExchange {
public:
    /// For the whole exchange, and additionally for each megabyte of a file.
    static constexpr std::chrono::seconds time_limit{30};
    static constexpr std::chrono::seconds time_limit_a_megabyte{1};
    static constexpr std::uint64_t largest_body = std::uint64_t{8} << 20;

    /// `more` is passed to the connection.
    template <class... More>
    HttpExchange(const Url& server, const HttpRequest& request, More&... more)
        : server_(server), connection_(io_, server, more...) {
        if (request.file.empty()) {
            text_.emplace();
            text_->body() = request.body;
            prepare(*text_, request);
        } else {
            open(request);
        }
        parser_.body_limit(largest_body);
    }

    [[nodiscard]] HttpAnswer run() {
        resolver_.async_resolve(server_.host, server_.port, [this](Code code, auto addresses) {
            if (go_on(code, "host not found")) {
                connect(std::move(addresses));
            }
        });
        const auto limit = time_limit + megabytes_ * time_limit_a_megabyte;
        io_.run_for(limit);
        if (!done_ && !error_) {
            error_ =
                no_answer(server_, rtrain::detail::concat("timed out after ", limit.count(), " s"));
        }
        if (error_) {
            throw Error(*error_);
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
    using Code = HttpCode;
    using Text = boost::beast::http::string_body;
    using File = boost::beast::http::file_body;

    template <class Message>
    void prepare(Message& message, const HttpRequest& request) const {
        using Method = HttpRequest::Method;
        message.version(11);
        message.method(request.method == Method::get    ? Http::verb::get
                       : request.method == Method::post ? Http::verb::post
                                                        : Http::verb::put);
        message.target(server_.path + request.target);
        message.set(Http::field::host, server_.authority());
        message.set(Http::field::user_agent, "rtrain");
        message.set(Http::field::connection, "close");
        if (request.method != Method::get) {
            message.set(Http::field::content_type,
                        request.file.empty() ? "application/json" : "application/octet-stream");
        }
        if (!request.authorization.empty()) {
            message.set(Http::field::authorization, request.authorization);
        }
        message.prepare_payload();
    }

    /// Throws Error [RT-V69].
    void open(const HttpRequest& request) {
        Code code;
        file_.emplace();
        file_->body().open(request.file.c_str(), boost::beast::file_mode::scan, code);
        if (code) {
            throw Error("RT-V69", rtrain::detail::concat(request.file.string(),
                                                         " cannot be read: ", code.message()));
        }
        constexpr std::uint64_t megabyte = 1'000'000;
        megabytes_ = static_cast<int>(file_->body().size() / megabyte);
        prepare(*file_, request);
    }

    bool go_on(const Code& code, const char* what) {
        if (code) {
            error_ = no_answer(server_, rtrain::detail::concat(what, ": ", code.message()));
        }
        return !code;
    }

    void connect(Tcp::resolver::results_type addresses) {
        boost::asio::async_connect(connection_.socket(), addresses,
                                   [this](Code code, const auto& /*end*/) {
                                       if (go_on(code, "connection failed")) {
                                           connection_.agree([this](std::optional<Error> error) {
                                               error_ = std::move(error);
                                               if (!error_) {
                                                   text_ ? write(*text_) : write(*file_);
                                               }
                                           });
                                       }
                                   });
    }

    template <class Message>
    void write(Message& message) {
        boost::beast::http::async_write(connection_.stream(), message,
                                        [this](Code code, std::size_t) {
                                            if (go_on(code, "sending the request failed")) {
                                                read();
                                            }
                                        });
    }

    void read() {
        boost::beast::http::async_read(
            connection_.stream(), buffer_, parser_, [this](Code code, std::size_t) {
                done_ = go_on(code, "the answer is incomplete or not HTTP");
            });
    }

    const Url& server_;
    std::optional<boost::beast::http::request<Text>> text_; ///< or file_
    std::optional<boost::beast::http::request<File>> file_;
    int megabytes_ = 0;
    boost::beast::http::response_parser<Text> parser_;
    boost::beast::flat_buffer buffer_;
    boost::asio::io_context io_{1};
    Tcp::resolver resolver_{io_};
    Connection connection_;
    std::optional<Error> error_;
    bool done_ = false;
};

} // namespace internal

/// An unencrypted HttpSender.
[[nodiscard]] inline HttpAnswer http_exchange(const Url& server, const HttpRequest& request) {
    return internal::HttpExchange<internal::PlainConnection>(server, request).run();
}

} // namespace rtrain::track
