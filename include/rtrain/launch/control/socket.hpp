// SPDX-License-Identifier: Apache-2.0
/// @file
/// A rank's connection to the driver. Never blocks once connected. Used by
/// launch/control/driver_link.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/launch/control/address.hpp>
#include <rtrain/launch/control/message.hpp>
#include <rtrain/process/os/token.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace rtrain::launch {

class ControlSocket {
public:
    using Clock = std::chrono::steady_clock;

    ControlSocket() = default;
    ControlSocket(ControlSocket&& other) noexcept
        : descriptor_(std::exchange(other.descriptor_, -1)), local_(other.local_),
          frames_(std::move(other.frames_)) {}
    ControlSocket& operator=(ControlSocket&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        std::swap(local_, other.local_);
        std::swap(frames_, other.frames_);
        return *this;
    }
    ~ControlSocket() {
        if (descriptor_ >= 0) {
            ::close(descriptor_);
        }
    }

    /// Connects through the Unix socket on the driver's machine, otherwise through TCP, and sends
    /// the Hello. Retries transient failures, such as a busy driver, up to `limit`. Throws
    /// LaunchError [RT-L8].
    [[nodiscard]] static ControlSocket connect(const std::string& address, const std::string& token,
                                               const Hello& hello,
                                               std::chrono::milliseconds limit) {
        const auto place = ControlAddress::parse(address);
        if (!place) {
            throw no_driver(detail::concat("the variable ", ControlAddress::variable, " is \"",
                                           address, "\", which is not an address"));
        }
        const auto deadline = Clock::now() + limit;
        std::string why;
        do {
            errno = 0;
            auto socket = open(*place, deadline);
            if (socket.descriptor_ < 0) {
                why = std::strerror(errno);
                if (errno == ECONNREFUSED || errno == ENOENT || errno == EPERM) {
                    break; // no process listens, or a different user's
                }
            } else if (socket.greet(token, hello, deadline)) {
                return socket;
            } else {
                why = "no welcome for this rank; does its token belong to a different attempt?";
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        } while (Clock::now() < deadline);
        throw no_driver(detail::concat("cannot join the driver at ", place->tcp,
                                       place->tcp.empty() ? "" : " or ", place->socket.string(),
                                       ": ", why));
    }

    [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
    [[nodiscard]] bool is_local() const noexcept { return local_; }

    /// Sends what the kernel accepts now, and removes it. Returns false if the connection has
    /// ended.
    [[nodiscard]] bool send_some(std::string& outgoing) const {
        while (!outgoing.empty()) {
            const ssize_t sent =
                ::send(descriptor_, outgoing.data(), outgoing.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent >= 0) {
                outgoing.erase(0, static_cast<std::size_t>(sent));
            } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                return true;
            } else if (errno != EINTR) {
                return false;
            }
        }
        return true;
    }

    enum class Received : unsigned char { nothing, something, end };

    /// Reads all available bytes.
    [[nodiscard]] Received receive() {
        Received result = Received::nothing;
        for (;;) {
            std::array<char, 16384> part; // NOLINT: recv fills it
            const ssize_t got = ::recv(descriptor_, part.data(), part.size(), MSG_DONTWAIT);
            if (got > 0) {
                frames_.append({part.data(), static_cast<std::size_t>(got)});
                result = Received::something;
            } else if (got < 0 && errno == EINTR) {
                continue;
            } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
                return result;
            } else {
                return Received::end;
            }
        }
    }

    /// Returns the driver's next complete message. Throws LaunchError [RT-L9].
    [[nodiscard]] std::optional<DriverEvent> next() {
        const auto text = frames_.next();
        return text ? std::optional(parse_from_driver(*text)) : std::nullopt;
    }

private:
    static LaunchError no_driver(const std::string& why) { return {"RT-L8", why}; }

    /// On failure, without a descriptor and with errno set.
    static ControlSocket open(const ControlAddress& place, Clock::time_point deadline) {
        ControlSocket socket;
        if (place.tcp.empty() || place.machine == ControlAddress::this_machine()) {
            socket.open_local(place.socket);
        }
        if (socket.descriptor_ < 0 && !place.tcp.empty()) {
            socket.open_remote(place.tcp, deadline);
        }
        return socket;
    }

    void open_local(const std::filesystem::path& path) {
        const UnixPath place(path);
        if (!place.is_open()) {
            return;
        }
        const sockaddr_un address = place.address();
        const int made = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        ucred process{};
        socklen_t size = sizeof process;
        if (::connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
            ::getsockopt(made, SOL_SOCKET, SO_PEERCRED, &process, &size) != 0) {
            discard(made, errno);
        } else if (process.uid != ::geteuid()) {
            discard(made, EPERM);
        } else {
            descriptor_ = made;
            local_ = true;
        }
    }

    void open_remote(const std::string& text, Clock::time_point deadline) {
        const auto colon = text.rfind(':');
        if (colon == std::string::npos) {
            errno = ENOENT;
            return;
        }
        std::string host = text.substr(0, colon);
        if (host.starts_with('[') && host.ends_with(']')) {
            host = host.substr(1, host.size() - 2);
        }
        addrinfo wanted{};
        wanted.ai_socktype = SOCK_STREAM;
        wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
        addrinfo* found = nullptr;
        if (::getaddrinfo(host.c_str(), text.c_str() + colon + 1, &wanted, &found) != 0) {
            errno = ENOENT;
            return;
        }
        const int made = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        const int result = ::connect(made, found->ai_addr, found->ai_addrlen);
        int error = result == 0 ? 0 : errno;
        ::freeaddrinfo(found);
        if (error == EINPROGRESS) {
            // Long enough for a retransmission; a lost node must not delay the next attempt.
            constexpr std::chrono::seconds patience{3};
            wait_until(made, POLLOUT, std::min(deadline, Clock::now() + patience));
            pollfd state{made, POLLOUT, 0};
            socklen_t size = sizeof error;
            if (::poll(&state, 1, 0) == 0) {
                error = ETIMEDOUT;
            } else if (::getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
                error = errno;
            }
        }
        if (error != 0) {
            discard(made, error);
            return;
        }
        const int on = 1;
        ::setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        descriptor_ = made;
    }

    static void discard(int socket, int error) {
        ::close(socket);
        errno = error;
    }

    static void wait_until(int socket, int events, Clock::time_point deadline) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
        pollfd state{socket, static_cast<short>(events), 0};
        (void)::poll(&state, 1, static_cast<int>(std::clamp<long long>(left, 0, 60'000)));
    }

    /// Returns true if the driver answered with a welcome. Throws with its reason if it refuses.
    bool greet(const std::string& token, const Hello& hello, Clock::time_point deadline) {
        struct Wiped {
            std::string text;
            ~Wiped() { control::wipe(text); }
        } greeting{token + encode(hello)};
        std::string& outgoing = greeting.text;
        while (Clock::now() < deadline) {
            if (!send_some(outgoing)) {
                return false;
            }
            wait_until(descriptor_, outgoing.empty() ? POLLIN : POLLIN | POLLOUT, deadline);
            const Received received = receive();
            if (const auto answer = next()) {
                if (std::holds_alternative<event::Welcome>(*answer)) {
                    return true;
                }
                const auto* const refused = std::get_if<event::Refused>(&*answer);
                throw no_driver(
                    detail::concat("the driver refuses this rank: ",
                                   refused != nullptr ? refused->why : control::name_of(*answer)));
            }
            if (received == Received::end) {
                return false;
            }
        }
        return false;
    }

    int descriptor_ = -1;
    bool local_ = false;
    FrameReader frames_;
};

} // namespace rtrain::launch
