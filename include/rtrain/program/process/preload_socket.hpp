// SPDX-License-Identifier: Apache-2.0
/// @file
/// The socket of a preload server: its address, and both of its ends.
#pragma once

#include <rtrain/launch/control/address.hpp>
#include <rtrain/process/os/descriptor.hpp>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace rtrain::program {

/// A path, or '@' and a name outside of the file system, which ends with its last socket.
class PreloadAddress {
public:
    explicit PreloadAddress(const std::string& text) {
        if (text.starts_with('@')) {
            address_.sun_family = AF_UNIX;
            text.copy(address_.sun_path + 1, sizeof address_.sun_path - 2, 1);
        } else {
            address_ = path_.emplace(text).address();
        }
    }

    [[nodiscard]] const sockaddr* get() const noexcept {
        return reinterpret_cast<const sockaddr*>(&address_); // NOLINT
    }
    static constexpr socklen_t size = sizeof(sockaddr_un);

private:
    std::optional<launch::UnixPath> path_; ///< open while the address is used
    sockaddr_un address_{};
};

/// A listening socket, which programs that this process starts inherit.
class PreloadListener {
public:
    /// A former socket at the path is replaced. Empty if the address is in use, or on an error,
    /// with errno set.
    [[nodiscard]] static std::optional<PreloadListener> at(const std::string& address) {
        constexpr int waiting = 256; // ranks
        process::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!address.starts_with('@')) {
            ::unlink(address.c_str());
        }
        if (::bind(socket.get(), PreloadAddress(address).get(), PreloadAddress::size) != 0 ||
            ::listen(socket.get(), waiting) != 0) {
            return std::nullopt;
        }
        ::fcntl(socket.get(), F_SETFD, 0);
        return PreloadListener(std::move(socket));
    }

    [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

private:
    explicit PreloadListener(process::Descriptor socket) : socket_(std::move(socket)) {}

    process::Descriptor socket_;
};

/// Connects to this user's server. Without a descriptor if there is none.
[[nodiscard]] inline process::Descriptor connect_to_preload(const std::string& address) {
    process::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ucred server{};
    socklen_t size = sizeof server;
    const bool is_ours =
        ::connect(socket.get(), PreloadAddress(address).get(), PreloadAddress::size) == 0 &&
        ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &server, &size) == 0 &&
        server.uid == ::geteuid();
    return is_ours ? std::move(socket) : process::Descriptor();
}

} // namespace rtrain::program
