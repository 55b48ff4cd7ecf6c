// SPDX-License-Identifier: Apache-2.0
/// @file
/// ChildExit: waits for a child process to exit, without a handler of SIGCHLD: that would end
/// sleep() early in any thread of the program.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <utility>

#include <sys/syscall.h>
#include <unistd.h>

namespace rtrain::launch {

class ChildExit {
public:
    explicit ChildExit(boost::asio::io_context& io) : end_(io), timer_(io) {}

    /// Calls `look(error)` when the process may have exited: when it has, or after 50 ms where the
    /// kernel has no pidfd, as before Linux 5.3.
    template <class F>
    void wait(pid_t child, F look) {
        if (!end_.is_open()) {
            if (const long end = ::syscall(SYS_pidfd_open, child, 0); end >= 0) {
                end_.assign(static_cast<int>(end));
            }
        }
        if (end_.is_open()) {
            end_.async_wait(boost::asio::posix::descriptor_base::wait_read, std::move(look));
        } else {
            constexpr std::chrono::milliseconds pause{50};
            timer_.expires_after(pause);
            timer_.async_wait(std::move(look));
        }
    }

private:
    boost::asio::posix::stream_descriptor end_; ///< a pidfd
    boost::asio::steady_timer timer_;
};

} // namespace rtrain::launch
