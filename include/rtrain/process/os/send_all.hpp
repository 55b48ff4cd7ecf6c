// SPDX-License-Identifier: Apache-2.0
/// @file
/// send_all(): all bytes through a socket that blocks. Cost tier 0: std only.
#pragma once

#include <cerrno>
#include <cstddef>
#include <string_view>

#include <sys/socket.h>

namespace rtrain::process {

/// Returns false if the other end is gone, without SIGPIPE.
[[nodiscard]] inline bool send_all(int socket, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        bytes.remove_prefix(sent > 0 ? static_cast<std::size_t>(sent) : 0);
    }
    return true;
}

} // namespace rtrain::process
