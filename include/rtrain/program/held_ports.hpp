// SPDX-License-Identifier: Apache-2.0
/// @file
/// HeldPorts: TCP ports that no other process gets, on which a rank can listen.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/os/descriptor.hpp>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

namespace rtrain::program {

/// Each port is bound with SO_REUSEADDR, but does not listen: Linux lets a socket with the same
/// option listen on it, and gives the port to no process that asks for any free one.
class HeldPorts {
public:
    HeldPorts() = default;
    /// Throws LaunchError [RT-E1].
    explicit HeldPorts(int count) {
        for (int i = 0; i < count; ++i) {
            hold();
        }
    }

    [[nodiscard]] const std::vector<int>& numbers() const noexcept { return numbers_; }

private:
    void hold() {
        process::Descriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in6 any{};
        any.sin6_family = AF_INET6;
        bool is_bound = bind(socket.get(), reinterpret_cast<const sockaddr&>(any), sizeof any);
        if (!is_bound) { // a machine without IPv6
            socket = process::Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
            sockaddr_in only_v4{};
            only_v4.sin_family = AF_INET;
            is_bound =
                bind(socket.get(), reinterpret_cast<const sockaddr&>(only_v4), sizeof only_v4);
        }
        sockaddr_in6 bound{}; // both families have the port at the same place
        socklen_t size = sizeof bound;
        if (!is_bound ||
            ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
            throw LaunchError(
                "RT-E1", detail::concat("no TCP port is free for the ranks: ", std::strerror(errno),
                                        "; end programs that use many ports"));
        }
        numbers_.push_back(ntohs(bound.sin6_port));
        sockets_.push_back(std::move(socket));
    }

    static bool bind(int socket, const sockaddr& address, socklen_t size) {
        const int on = 1;
        return socket >= 0 && ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
               ::bind(socket, &address, size) == 0;
    }

    std::vector<process::Descriptor> sockets_;
    std::vector<int> numbers_;
};

} // namespace rtrain::program
