// SPDX-License-Identifier: Apache-2.0
/// @file
/// The connection between rank 0 of a trial and its search: a Unix socket in a directory of this
/// user, and one line of JSON each way.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/launch/control/address.hpp>
#include <rtrain/process/os/descriptor.hpp>

#include <boost/json/object.hpp>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace rtrain::tune::internal {

[[nodiscard]] inline LaunchError socket_error(const char* what) {
    return {"RT-L8",
            rtrain::detail::concat("a trial cannot ", what, " its search: ", std::strerror(errno))};
}

/// One end of a connection that exchanges lines.
class LineConnection {
public:
    LineConnection() = default;
    explicit LineConnection(process::Descriptor socket) : socket_(std::move(socket)) {}

    [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

    /// False when the peer has disconnected.
    bool send(const boost::json::object& message) {
        return send_bytes(json::serialize(message) + "\n");
    }
    bool send_bytes(std::string_view bytes) {
        for (std::size_t sent = 0; sent < bytes.size();) {
            const ssize_t got =
                ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
            if (got < 0 && errno == EINTR) {
                continue;
            }
            if (got < 0) {
                return false;
            }
            sent += static_cast<std::size_t>(got);
        }
        return true;
    }

    /// Reads the available bytes; blocks if there are none. False at the end.
    bool fill() {
        char buffer[65536];
        ssize_t got = -1;
        do {
            got = ::recv(socket_.get(), buffer, sizeof buffer, 0);
        } while (got < 0 && errno == EINTR);
        if (got <= 0) {
            return false;
        }
        text_.append(buffer, static_cast<std::size_t>(got));
        return true;
    }
    /// Number of received bytes not yet taken.
    [[nodiscard]] std::size_t size() const noexcept { return text_.size(); }
    /// The next complete message; none if incomplete.
    [[nodiscard]] std::optional<boost::json::object> take() {
        const std::size_t end = text_.find('\n');
        if (end == std::string::npos) {
            return std::nullopt;
        }
        auto message = json::parse(std::string_view(text_).substr(0, end)).as_object();
        text_.erase(0, end + 1);
        return message;
    }
    /// Takes the bytes after the messages so far; blocks until they are received. None at the end.
    [[nodiscard]] std::optional<std::string> take_bytes(std::size_t size) {
        while (text_.size() < size) {
            if (!fill()) {
                return std::nullopt;
            }
        }
        std::string bytes = text_.substr(0, size);
        text_.erase(0, size);
        return bytes;
    }

private:
    process::Descriptor socket_;
    std::string text_;
};

/// Accepts the connections of one trial. Its destructor removes the path.
class TrialChannelListener {
public:
    explicit TrialChannelListener(std::filesystem::path path)
        : path_(std::move(path)), socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        ::unlink(path_.c_str());
        const launch::UnixPath place(path_);
        const sockaddr_un address = place.address();
        constexpr int backlog = 8;
        if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
                0 ||
            ::listen(socket_.get(), backlog) != 0) {
            throw socket_error("accept connections from");
        }
    }
    TrialChannelListener(const TrialChannelListener&) = delete;
    TrialChannelListener& operator=(const TrialChannelListener&) = delete;
    ~TrialChannelListener() { ::unlink(path_.c_str()); }

    [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
    [[nodiscard]] LineConnection accept() const {
        return LineConnection(
            process::Descriptor(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    }

private:
    std::filesystem::path path_;
    process::Descriptor socket_;
};

/// Connects to the search. Throws LaunchError [RT-L8].
[[nodiscard]] inline LineConnection connect_to_search(const std::filesystem::path& path) {
    process::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const launch::UnixPath place(path);
    const sockaddr_un address = place.address();
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        throw socket_error("reach");
    }
    return LineConnection(std::move(socket));
}

} // namespace rtrain::tune::internal
