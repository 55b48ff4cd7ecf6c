// SPDX-License-Identifier: Apache-2.0
/// @file
/// RunLease: ends processes on other machines with the run.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/launch/control/listener.hpp>
#include <rtrain/launch/control/own_address.hpp>
#include <rtrain/process/os/descriptor.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <chrono>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace rtrain::program {

/// A TCP port of the driver. Its connections carry nothing: they end with this object, or with its
/// process, whatever kills it.
class RunLease {
public:
    /// Listens on the address that routes to `hosts`. Throws LaunchError [RT-L7].
    explicit RunLease(const std::vector<std::string>& hosts) : listener_(io_) {
        const boost::asio::ip::tcp::endpoint wanted(launch::own_address(io_, hosts), 0);
        boost::system::error_code error;
        listener_.open(wanted.protocol(), error);
        if (!error) {
            ::fcntl(listener_.native_handle(), F_SETFD, FD_CLOEXEC);
            listener_.bind(wanted, error);
        }
        if (!error) {
            listener_.listen(boost::asio::socket_base::max_listen_connections, error);
        }
        if (error) {
            throw LaunchError("RT-L7",
                              detail::concat("cannot listen at ", wanted, ": ", error.message()));
        }
        listener_.non_blocking(true);
    }

    /// For hold(): "10.0.0.1 4711".
    [[nodiscard]] std::string address() const {
        const auto own = listener_.local_endpoint();
        return detail::concat(own.address().to_string(), ' ', own.port());
    }

    /// The kernel keeps new connections without this process, but only so many. Call now and then.
    void accept() {
        std::erase_if(held_, [](const process::Descriptor& one) { return has_ended(one); });
        for (;;) {
            process::Descriptor next(
                ::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC));
            if (next.get() < 0) {
                return;
            }
            held_.push_back(std::move(next));
        }
    }

    /// Connects to a run's lease. Throws boost::system::system_error.
    [[nodiscard]] static process::Descriptor hold(const std::string& address) {
        std::string host;
        unsigned short port = 0;
        detail::strict(std::istringstream(address)) >> host >> port;
        boost::asio::io_context io;
        boost::asio::ip::tcp::socket socket(io);
        const boost::asio::ip::tcp::endpoint driver(boost::asio::ip::make_address(host), port);
        socket.open(driver.protocol());
        const int handle = socket.native_handle();
        ::fcntl(handle, F_SETFD, FD_CLOEXEC);
        const auto set = [handle](int level, int option, int value) {
            ::setsockopt(handle, level, option, &value, sizeof value);
        };
        constexpr int tries = 3;
        constexpr int idle_s = 5;
        constexpr auto limit_s = static_cast<int>(launch::ControlListener::silence_limit.count());
        set(IPPROTO_TCP, TCP_SYNCNT, tries);
        set(SOL_SOCKET, SO_KEEPALIVE, 1); // a driver that is cut off sends nothing
        set(IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
        set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
        set(IPPROTO_TCP, TCP_KEEPCNT, limit_s - idle_s);
        socket.connect(driver);
        return process::Descriptor(socket.release());
    }

    /// True once the run has ended.
    [[nodiscard]] static bool has_ended(const process::Descriptor& held) {
        pollfd end{held.get(), POLLIN, 0};
        return ::poll(&end, 1, 0) > 0;
    }

private:
    boost::asio::io_context io_;
    boost::asio::ip::tcp::acceptor listener_;
    std::vector<process::Descriptor> held_;
};

} // namespace rtrain::program
