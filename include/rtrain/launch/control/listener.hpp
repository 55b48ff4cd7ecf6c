// SPDX-License-Identifier: Apache-2.0
/// @file
/// Listens for ranks: on a Unix socket that only this user can open, and on TCP for ranks on other
/// nodes. The protocol is in server.hpp.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/launch/control/address.hpp>
#include <rtrain/launch/control/own_address.hpp>
#include <rtrain/process/os/token.hpp>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::launch {

/// Held by shared pointers, because accepting may outlive its owner; close() ends it.
class ControlListener : public std::enable_shared_from_this<ControlListener> {
public:
    struct Options {
        /// Directory of the socket; must belong to this user, with mode 0700.
        std::filesystem::path directory{};
        /// Listens on TCP, too, for ranks on other nodes.
        bool remote = false;
        /// Those nodes, if known: TCP listens on the address that routes to them.
        std::vector<std::string> hosts{};
    };
    struct Caller {
        boost::asio::generic::stream_protocol::socket socket;
        bool local;       ///< a process of this user, on this machine
        std::string name; ///< for the log
        int pid;          ///< of a local process
    };
    struct Handlers {
        std::function<void(Caller)> called;
        std::function<void(const std::string& who, const std::string& why)> refused;
    };
    /// A TCP connection without acknowledgments for this long is lost.
    static constexpr std::chrono::seconds silence_limit{10};

    /// Throws LaunchError [RT-L7]. Accepts no connection before start().
    ControlListener(boost::asio::io_context& io, const Options& options)
        : local_(io), remote_(io), accept_again_(io) {
        address_.machine = ControlAddress::this_machine();
        listen_locally(options.directory);
        if (options.remote) {
            listen_remotely(io, options.hosts);
        }
    }
    ControlListener(const ControlListener&) = delete;
    ControlListener& operator=(const ControlListener&) = delete;
    ~ControlListener() { remove_socket(); }

    void start(Handlers handlers) {
        handlers_ = std::move(handlers);
        accept(local_);
        if (remote_.is_open()) {
            accept(remote_);
        }
    }

    [[nodiscard]] const ControlAddress& address() const noexcept { return address_; }

    /// No more handlers are called. Handlers may call this.
    void close() {
        closed_ = true;
        Code ignored;
        local_.close(ignored);
        remote_.close(ignored);
        accept_again_.cancel();
        remove_socket();
    }

private:
    using Code = boost::system::error_code;

    static LaunchError cannot_listen(const std::string& where, const std::string& why) {
        return {"RT-L7", "cannot open the control channel " + where + ": " + why};
    }

    void listen_locally(const std::filesystem::path& directory) {
        const auto path = directory / ("control-" + control::random_text(8));
        const UnixPath place(path);
        struct stat status {};
        if (!place.is_open() || ::fstat(place.directory(), &status) != 0) {
            throw cannot_listen("in " + directory.string(), std::strerror(errno));
        }
        if (status.st_uid != ::geteuid() || (status.st_mode & 077U) != 0) {
            throw cannot_listen("in " + directory.string(),
                                "users other than this one can open the directory; make it "
                                "this user's, with mode 0700");
        }
        Code error;
        local_.open(boost::asio::local::stream_protocol(), error);
        if (!error) {
            local_.bind(boost::asio::local::stream_protocol::endpoint(place.name()), error);
        }
        if (!error) {
            keep_from_children(local_.native_handle());
            address_.socket = std::filesystem::absolute(path);
            local_.listen(boost::asio::socket_base::max_listen_connections, error);
        }
        if (error) {
            remove_socket();
            throw cannot_listen("in " + directory.string(), error.message());
        }
    }

    void listen_remotely(boost::asio::io_context& io, const std::vector<std::string>& hosts) {
        const auto address = own_address(io, hosts);
        const boost::asio::ip::tcp::endpoint wanted(address, 0);
        Code error;
        remote_.open(wanted.protocol(), error);
        if (!error) {
            remote_.bind(wanted, error);
        }
        if (!error) {
            remote_.listen(boost::asio::socket_base::max_listen_connections, error);
        }
        if (error) {
            remove_socket();
            throw cannot_listen("at " + address.to_string(), error.message());
        }
        keep_from_children(remote_.native_handle());
        address_.tcp = detail::concat(remote_.local_endpoint());
    }

    void remove_socket() {
        if (!address_.socket.empty()) {
            ::unlink(address_.socket.c_str());
            address_.socket.clear();
        }
    }

    template <class Acceptor>
    void accept(Acceptor& acceptor) {
        acceptor.async_accept(
            [self = shared_from_this(), &acceptor](const Code& error, auto socket) {
                if (self->closed_) {
                    return;
                }
                if (!error) {
                    self->take(std::move(socket));
                    if (!self->closed_) {
                        self->accept(acceptor);
                    }
                } else { // such as no free descriptor: transient
                    self->accept_again_.expires_after(std::chrono::milliseconds(100));
                    self->accept_again_.async_wait([self, &acceptor](const Code&) {
                        if (!self->closed_) {
                            self->accept(acceptor);
                        }
                    });
                }
            });
    }

    void take(boost::asio::local::stream_protocol::socket socket) {
        ucred process{};
        socklen_t size = sizeof process;
        const bool known =
            ::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &process, &size) == 0;
        const std::string name = detail::concat("process ", process.pid, " of user ", process.uid);
        if (!known || process.uid != ::geteuid()) {
            handlers_.refused(name, "the process belongs to a different user");
            return;
        }
        keep_from_children(socket.native_handle());
        handlers_.called({std::move(socket), true, name, process.pid});
    }

    void take(boost::asio::ip::tcp::socket socket) {
        Code ignored;
        const auto from = socket.remote_endpoint(ignored);
        keep_from_children(socket.native_handle());
        const int on = 1;
        const auto limit_ms =
            static_cast<unsigned>(std::chrono::milliseconds(silence_limit).count());
        ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms,
                     sizeof limit_ms);
        handlers_.called({std::move(socket), false, detail::concat(from), 0});
    }

    /// Programs started by this one must not keep a connection open, or accept one.
    static void keep_from_children(int socket) { ::fcntl(socket, F_SETFD, FD_CLOEXEC); }

    ControlAddress address_;
    boost::asio::local::stream_protocol::acceptor local_;
    boost::asio::ip::tcp::acceptor remote_;
    boost::asio::steady_timer accept_again_;
    Handlers handlers_{};
    bool closed_ = false;
};

} // namespace rtrain::launch
