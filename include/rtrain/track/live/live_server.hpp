// SPDX-License-Identifier: Apache-2.0
/// @file
/// LiveServer: serves a page and a stream of its reports (server-sent events) over HTTP, to
/// programs on this machine that have the secret token. Included by definitions only: Beast is slow
/// to compile.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/os/token.hpp>
#include <rtrain/track/http/loopback.hpp>
#include <rtrain/track/live/live_run.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>

namespace rtrain::track::live {

using Tcp = boost::asio::ip::tcp;
using Code = boost::system::error_code;
using Request = boost::beast::http::request_parser<boost::beast::http::empty_body>;
using Response = boost::beast::http::response<boost::beast::http::string_body>;
namespace http = boost::beast::http;

/// The token in the query part of a target; empty if missing.
[[nodiscard]] inline std::string token_in(const boost::urls::url_view& target) {
    const auto params = target.params();
    const auto found = params.find("token");
    return found == params.end() ? "" : std::string((*found).value);
}

/// True if a Host header names this machine. Protects against DNS rebinding, where the header has
/// the attacker's host name. The port may differ, because of tunnels.
[[nodiscard]] inline bool is_this_machine(std::string_view host) {
    const auto authority = boost::urls::parse_authority(host);
    return authority && !authority->has_userinfo() && is_loopback(*authority);
}

/// One event of the stream; `data` has no line break.
[[nodiscard]] inline std::string event_text(std::string_view kind, std::string_view data,
                                            const SeenReports* seen = nullptr) {
    std::string text = rtrain::detail::concat("event: ", kind, "\n");
    if (seen != nullptr) {
        text += rtrain::detail::concat("id: ", seen->attempt, "-", seen->iteration, "\n");
    }
    return text + rtrain::detail::concat("data: ", data, "\n\n");
}

/// Parses an id of event_text().
[[nodiscard]] inline SeenReports seen_from(std::string_view id) {
    const std::size_t dash = std::min(id.rfind('-'), id.size());
    SeenReports seen{std::string(id.substr(0, dash)), 0};
    const std::string_view number = id.substr(std::min(dash + 1, id.size()));
    std::from_chars(number.data(), number.data() + number.size(), seen.iteration);
    return seen;
}

/// The state of the run that connections read.
struct Shown {
    LiveNote& note;
    LiveRun& run;
};

/// One connection: a request and its answer, possibly the stream.
class Connection : public std::enable_shared_from_this<Connection> {
public:
    static constexpr std::chrono::seconds patience{10}; ///< for a request, and for sending an
                                                        ///< answer
    static constexpr std::chrono::seconds heartbeat{15};
    static constexpr std::uint32_t largest_header = 8192;        ///< bytes
    static constexpr std::size_t portion = std::size_t{1} << 16; ///< bytes of events at a time

    Connection(Tcp::socket socket, Shown shown) : stream_(std::move(socket)), shown_(shown) {
        request_.header_limit(largest_header);
        request_.body_limit(boost::none); // no body is read
        ::fcntl(stream_.socket().native_handle(), F_SETFD, FD_CLOEXEC);
    }

    void begin() {
        stream_.expires_after(patience);
        http::async_read_header(
            stream_, buffer_, request_,
            [self = shared_from_this()](Code code, std::size_t) { self->answer(code); });
    }

    [[nodiscard]] bool is_open() const { return stream_.socket().is_open(); }
    /// True if its request had the token.
    [[nodiscard]] bool is_admitted() const noexcept { return is_admitted_; }
    [[nodiscard]] bool is_stream() const noexcept { return reports_.has_value(); }
    void close() {
        Code ignored;
        stream_.socket().shutdown(Tcp::socket::shutdown_both, ignored);
        stream_.close();
    }

    /// Sends new reports, if any.
    void go_on() {
        if (reports_) {
            send();
        }
    }
    /// The run has resumed: reports that the client has seen may be superseded.
    void rewind() {
        if (reports_) {
            resume({attempt_, reports_->seen()});
            send();
        }
    }
    void tell(std::string_view event, std::string_view data) {
        if (reports_) {
            waiting_ += event_text(event, data);
            send();
        }
    }
    void beat() {
        if (reports_) {
            waiting_ += ":\n\n";
            send();
        }
    }

private:
    void answer(Code code) {
        const Code none = http::make_error_code(http::error::end_of_stream);
        if (!code) {
            look_at(request_.get());
        } else if (code == http::error::header_limit || code == http::error::buffer_overflow) {
            refuse(http::status::request_header_fields_too_large, "the header is too large");
        } else if (code.category() == none.category() && code != none) {
            refuse(http::status::bad_request, "the request is not valid HTTP");
        } else { // no request, or a timeout
            close();
        }
    }

    void look_at(const http::request<http::empty_body>& request) {
        const auto target = boost::urls::parse_origin_form(request.target());
        const auto field = [&](http::field name) {
            const auto value = request[name];
            return std::string_view(value.data(), value.size());
        };
        if (request.method() != http::verb::get) {
            refuse(http::status::method_not_allowed, "only GET is allowed");
        } else if (!is_this_machine(field(http::field::host))) {
            refuse(http::status::misdirected_request, "the Host is not localhost");
        } else if (!target) {
            refuse(http::status::bad_request, "the target is not valid");
        } else if (!launch::control::equal_in_constant_time(token_in(*target), shown_.note.token)) {
            refuse(http::status::forbidden, "the token is missing or wrong; use the full address "
                                            "that rtrain printed");
        } else {
            is_admitted_ = true;
            const auto seen = request["Last-Event-ID"];
            const auto path = target->encoded_path();
            path == "/"         ? reply_page()
            : path == "/events" ? stream(seen_from({seen.data(), seen.size()}))
                                : refuse(http::status::not_found, "the paths are / and /events");
        }
    }

    void reply_page() {
        try {
            reply(response(http::status::ok, "text/html; charset=utf-8", shown_.run.page()));
        } catch (const std::exception& error) { // such as an unavailable storage service
            refuse(http::status::internal_server_error, error.what());
        }
    }

    void refuse(http::status status, const char* why) {
        Response refusal = response(status, "text/plain; charset=utf-8", std::string(why) + "\n");
        if (status == http::status::method_not_allowed) {
            refusal.set(http::field::allow, "GET");
        }
        reply(std::move(refusal));
    }

    static Response response(http::status status, const char* type, std::string body) {
        Response made(status, 11, std::move(body));
        made.set(http::field::content_type, type);
        made.set(http::field::cache_control, "no-store");
        made.set(http::field::connection, "close");
        made.set("Referrer-Policy", "no-referrer"); // the address holds the secret
        made.set(http::field::x_frame_options, "DENY");
        made.set("X-Content-Type-Options", "nosniff");
        made.set("Cross-Origin-Resource-Policy", "same-origin");
        return made;
    }

    void reply(Response made) {
        response_ = std::move(made);
        response_.prepare_payload();
        stream_.expires_after(patience);
        http::async_write(stream_, response_,
                          [self = shared_from_this()](Code, std::size_t) { self->linger(); });
    }

    /// Waits for the client to close, so that unread input does not discard the answer.
    void linger() {
        Code ignored;
        stream_.socket().shutdown(Tcp::socket::shutdown_send, ignored);
        stream_.expires_after(std::chrono::seconds(1));
        stream_.async_read_some(boost::asio::buffer(rest_),
                                [self = shared_from_this()](Code, std::size_t) { self->close(); });
    }

    void stream(const SeenReports& seen) {
        stream_.expires_never();
        Response head = response(http::status::ok, "text/event-stream", "");
        waiting_ = rtrain::detail::concat(head.base(), "retry: 1000\n\n");
        resume(seen);
        stream_.socket().async_read_some(
            boost::asio::buffer(rest_),
            [self = shared_from_this()](Code, std::size_t) { self->close(); });
        send();
    }

    /// Continues after the seen reports, as far as they are still valid.
    void resume(const SeenReports& seen) {
        const std::int64_t count = shown_.note.still_count(seen);
        attempt_ = shown_.run.attempt();
        if (count < seen.iteration) {
            const SeenReports left{attempt_, count};
            waiting_ +=
                event_text("rewind", rtrain::detail::concat("{\"iteration\":", count, "}"), &left);
        }
        reports_.emplace(shown_.run.results(), count);
    }

    void send() {
        if (is_sending_ || !is_open()) {
            return;
        }
        sent_ = std::exchange(waiting_, {});
        while (sent_.size() < portion) {
            const auto report = reports_->next(shown_.run.log_size());
            if (!report) {
                break;
            }
            const SeenReports seen{attempt_, report->iteration};
            sent_ += event_text("report", report->line, &seen);
        }
        if (sent_.empty()) {
            return;
        }
        is_sending_ = true;
        stream_.expires_after(patience);
        boost::asio::async_write(stream_, boost::asio::buffer(sent_),
                                 [self = shared_from_this()](Code code, std::size_t) {
                                     self->is_sending_ = false;
                                     code ? self->close() : self->send();
                                 });
    }

    boost::beast::tcp_stream stream_;
    Shown shown_;
    boost::beast::flat_buffer buffer_{largest_header};
    Request request_;
    Response response_;
    std::array<char, 512> rest_{};
    std::optional<UnseenReports> reports_; ///< only for a stream
    std::string attempt_;                  ///< start that made the reports
    std::string waiting_;                  ///< sent before the reports
    std::string sent_;
    bool is_sending_ = false;
    bool is_admitted_ = false;
};

/// Accepts up to `most_connections` connections. Ones without the token are closed in favor of new
/// ones.
class Listener {
public:
    static constexpr std::size_t most_connections = 32;

    /// Listens on `port` of the loopback interface; 0: any free port. Throws
    /// boost::system::system_error if the port is not free.
    Listener(boost::asio::io_context& io, int port, Shown shown)
        : acceptor_(io), heart_(io), shown_(shown) {
        const Tcp::endpoint here(boost::asio::ip::address_v4::loopback(),
                                 static_cast<std::uint16_t>(port));
        acceptor_.open(here.protocol());
        ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
        acceptor_.set_option(Tcp::acceptor::reuse_address(true));
        acceptor_.bind(here);
        acceptor_.listen();
    }

    [[nodiscard]] int port() const { return acceptor_.local_endpoint().port(); }

    void begin() {
        accept();
        beat();
    }

    template <class F>
    void for_each(F&& action) {
        std::erase_if(connections_, [](const auto& item) { return !item->is_open(); });
        const auto open = connections_; // an action may close one
        for (const auto& connection : open) {
            action(*connection);
        }
    }
    [[nodiscard]] bool has_streams() const {
        return std::ranges::any_of(
            connections_, [](const auto& one) { return one->is_open() && one->is_stream(); });
    }

private:
    void accept() {
        acceptor_.async_accept([this](Code code, Tcp::socket socket) {
            if (code == boost::asio::error::operation_aborted) {
                return;
            }
            if (!code && reserve_place()) {
                connections_.push_back(std::make_shared<Connection>(std::move(socket), shown_));
                connections_.back()->begin();
            }
            code ? wait_and_accept() : accept();
        });
    }

    /// Closes the oldest connection without the token, if necessary; false if all have it.
    [[nodiscard]] bool reserve_place() {
        for_each([](Connection&) {}); // removes closed connections
        if (connections_.size() < most_connections) {
            return true;
        }
        const auto stranger =
            std::ranges::find_if(connections_, [](const auto& one) { return !one->is_admitted(); });
        if (stranger == connections_.end()) {
            return false;
        }
        (*stranger)->close();
        connections_.erase(stranger);
        return true;
    }

    /// Retries later: the process may be out of file descriptors.
    void wait_and_accept() {
        pause_.expires_after(std::chrono::seconds(1));
        pause_.async_wait([this](Code code) {
            if (!code) {
                accept();
            }
        });
    }

    /// Detects connections whose client is gone.
    void beat() {
        heart_.expires_after(Connection::heartbeat);
        heart_.async_wait([this](Code code) {
            if (!code) {
                for_each([](Connection& one) { one.beat(); });
                beat();
            }
        });
    }

    Tcp::acceptor acceptor_;
    boost::asio::steady_timer heart_;
    boost::asio::steady_timer pause_{acceptor_.get_executor()};
    Shown shown_;
    std::list<std::shared_ptr<Connection>> connections_;
};

} // namespace rtrain::track::live
