// SPDX-License-Identifier: Apache-2.0
/// @file
/// The driver's side of the control channel: a Unix socket that only this user reaches, and TCP for
/// ranks on other nodes. Who connects says the token of this attempt first, then a Hello; until
/// then it gets 5 s, a few bytes and no JSON parser. docs/architecture.md shows the whole.
///
/// @code
/// boost::asio::io_context io;
/// ControlServer server(io, {.attempt = 1, .size = 4, .directory = directory},
///                      {.status = [](const RankReport& report) { ... }});
/// // start mpirun with server.variables() in its environment
/// io.run();
/// @endcode
#pragma once

#include <rtrain/error.hpp>
#include <rtrain/launch/control_address.hpp>
#include <rtrain/launch/message.hpp>
#include <rtrain/launch/own_address.hpp>
#include <rtrain/launch/token.hpp>

#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rtrain::launch {

/// Lives in one thread: the one that runs the io_context. Handlers are called from there, never
/// after close() or the destructor; they may call every member.
class ControlServer {
public:
    struct Options {
        int attempt = 0;
        int size = 1; ///< ranks
        /// Where the socket is made; must be this user's, and closed to others (0700).
        std::filesystem::path directory{};
        /// TCP as well, for ranks on other nodes.
        bool remote = false;
        /// These nodes, where known: the server listens at the address that is on the way to them.
        std::vector<std::string> hosts{};
    };
    /// Those that are not set are not called.
    struct Handlers {
        std::function<void(const Hello&)> joined{};
        std::function<void(const RankReport&)> status{};
        std::function<void(int rank, const Event&)> event{};
        /// The connection of a rank has ended. What it had sent was handled before.
        std::function<void(int rank)> left{};
        /// Somebody was turned away, for the log. When many come, some calls stand for several.
        std::function<void(const std::string& why)> refused{};
    };

    /// Time for a new connection to show the token and say who it is.
    static constexpr std::chrono::seconds handshake_limit{5};
    static constexpr std::chrono::seconds ping_interval{1};
    /// Unanswered for so long, a TCP connection is lost.
    static constexpr std::chrono::seconds silence_limit{10};
    /// Bytes in the first frame, a Hello.
    static constexpr std::size_t max_hello = 4096;
    /// Calls of `refused` in a second; the rest are counted and told in one.
    static constexpr int max_refusals_told = 20;

    /// Listens from now on. Throws LaunchError [RT-L7].
    ControlServer(boost::asio::io_context& io, Options options, Handlers handlers)
        : state_(std::make_shared<State>(io, std::move(options), std::move(handlers))) {
        state_->start();
    }
    ControlServer(const ControlServer&) = delete;
    ControlServer& operator=(const ControlServer&) = delete;
    ~ControlServer() { close(); }

    /// For the environment of the ranks. The token is among them: not for a command line.
    [[nodiscard]] std::map<std::string, std::string> variables() const {
        return {{ControlAddress::variable, state_->address().text()},
                {ControlAddress::token_variable, state_->token()},
                {ControlAddress::attempt_variable, std::to_string(state_->attempt())}};
    }

    /// Nothing happens when the rank is not connected. Throws LaunchError [RT-L9] when it is no
    /// event of the driver.
    void send(int rank, const Event& event) { state_->send(rank, encode(event)); }
    /// To each rank that is connected.
    void send_all(const Event& event) { state_->send_all(encode(event)); }

    /// Ends all connections at once and removes the socket. Ranks that are still there end
    /// themselves.
    void close() { state_->close(); }

private:
    using Socket = boost::asio::generic::stream_protocol::socket;
    using Code = boost::system::error_code;

    struct Connection {
        Connection(Socket its_socket, bool is_local, std::string its_name, int its_pid)
            : socket(std::move(its_socket)), deadline(socket.get_executor()), local(is_local),
              name(std::move(its_name)), pid(its_pid) {}

        Socket socket;
        boost::asio::steady_timer deadline;
        bool local;
        std::string name; ///< for the log
        int pid;          ///< of a local one
        int rank = -1;    ///< -1: it has not said
        std::string token{};
        FrameReader frames{max_hello};
        std::array<char, 16384> received{};
        std::deque<std::string> outgoing{};
        bool ending = false; ///< it is closed when `outgoing` is sent, and not heard any more
    };
    using Peer = std::shared_ptr<Connection>;

    /// What operations under way hold on to, so that the server can go at any time.
    class State : public std::enable_shared_from_this<State> {
    public:
        State(boost::asio::io_context& io, Options options, Handlers handlers)
            : options_(std::move(options)), handlers_(std::move(handlers)),
              token_(control::random_text(ControlAddress::token_size / 2)), local_(io), remote_(io),
              every_second_(io), accept_again_(io) {
            address_.machine = ControlAddress::this_machine();
            listen_locally();
            if (options_.remote) {
                listen_remotely(io);
            }
        }
        State(const State&) = delete;
        State& operator=(const State&) = delete;
        ~State() { remove_socket(); }

        void start() {
            accept(local_);
            if (remote_.is_open()) {
                accept(remote_);
            }
            tick();
        }

        [[nodiscard]] const ControlAddress& address() const noexcept { return address_; }
        [[nodiscard]] const std::string& token() const noexcept { return token_; }
        [[nodiscard]] int attempt() const noexcept { return options_.attempt; }

        void send(int rank, std::string frame) {
            if (const auto found = ranks_.find(rank); found != ranks_.end()) {
                write(found->second, std::move(frame));
            }
        }
        void send_all(const std::string& frame) {
            for (const auto& [rank, peer] : ranks_) {
                write(peer, frame);
            }
        }

        void close() {
            if (std::exchange(closed_, true)) {
                return;
            }
            Code ignored;
            local_.close(ignored);
            remote_.close(ignored);
            every_second_.cancel();
            accept_again_.cancel();
            for (const Peer& peer : pending_) {
                end(peer);
            }
            for (const auto& [rank, peer] : ranks_) {
                end(peer);
            }
            pending_.clear();
            ranks_.clear();
            remove_socket();
        }

    private:
        static LaunchError cannot_listen(const std::string& where, const std::string& why) {
            return {"RT-L7", "cannot open the control channel " + where + ": " + why};
        }

        void listen_locally() {
            const auto path = options_.directory / ("control-" + control::random_text(8));
            const UnixPath place(path);
            struct stat status {};
            if (!place.is_open() || ::fstat(place.directory(), &status) != 0) {
                throw cannot_listen("in " + options_.directory.string(), std::strerror(errno));
            }
            if (status.st_uid != ::geteuid() || (status.st_mode & 077U) != 0) {
                throw cannot_listen("in " + options_.directory.string(),
                                    "others than this user can open the directory; it must be "
                                    "this user's, with mode 0700");
            }
            Code error;
            local_.open(boost::asio::local::stream_protocol(), error);
            if (!error) {
                local_.bind(boost::asio::local::stream_protocol::endpoint(place.name()), error);
            }
            if (!error) {
                address_.socket = std::filesystem::absolute(path);
                local_.listen(boost::asio::socket_base::max_listen_connections, error);
            }
            if (error) {
                remove_socket();
                throw cannot_listen("in " + options_.directory.string(), error.message());
            }
        }

        void listen_remotely(boost::asio::io_context& io) {
            const auto address = own_address(io, options_.hosts);
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
            std::ostringstream text;
            text << remote_.local_endpoint();
            address_.tcp = text.str();
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
                        self->accept(acceptor);
                    } else { // such as no free descriptor: that passes
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
            const std::string name =
                detail::concat("process ", process.pid, " of user ", process.uid);
            if (!known || process.uid != ::geteuid()) {
                refused(name, "it is another user's");
                return;
            }
            begin(std::make_shared<Connection>(std::move(socket), true, name, process.pid));
        }

        void take(boost::asio::ip::tcp::socket socket) {
            Code ignored;
            const auto from = socket.remote_endpoint(ignored);
            const int on = 1;
            const auto limit_ms =
                static_cast<unsigned>(std::chrono::milliseconds(silence_limit).count());
            ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms,
                         sizeof limit_ms);
            begin(std::make_shared<Connection>(std::move(socket), false, detail::concat(from), 0));
        }

        /// When too many have not said who they are, the one that has had most time gives way: an
        /// honest one needs next to none.
        void begin(const Peer& peer) {
            pending_.push_back(peer);
            if (pending_.size() > std::size_t{4} * static_cast<std::size_t>(options_.size)) {
                refuse(Peer(pending_.front()), "too many connections that do not say who they are");
            }
            peer->deadline.expires_after(handshake_limit);
            peer->deadline.async_wait([self = shared_from_this(), peer](const Code& error) {
                if (!error && !self->closed_ && peer->rank < 0 && peer->socket.is_open()) {
                    self->refuse(peer, detail::concat("it did not say who it is within ",
                                                      handshake_limit.count(), " s"));
                }
            });
            read(peer);
        }

        void read(const Peer& peer) {
            peer->socket.async_read_some(
                boost::asio::buffer(peer->received),
                [self = shared_from_this(), peer](const Code& error, std::size_t size) {
                    if (self->closed_ || !peer->socket.is_open() || peer->ending) {
                        return;
                    }
                    if (error) {
                        self->lost(peer);
                        return;
                    }
                    self->handle(peer, std::string_view(peer->received.data(), size));
                    if (!self->closed_ && peer->socket.is_open() && !peer->ending) {
                        self->read(peer);
                    }
                });
        }

        void lost(const Peer& peer) {
            if (peer->rank < 0) {
                refuse(peer, "it left without saying who it is");
            } else {
                leave(peer);
            }
        }

        void leave(const Peer& peer) {
            end(peer);
            ranks_.erase(peer->rank);
            call(handlers_.left, peer->rank);
        }

        void handle(const Peer& peer, std::string_view bytes) {
            if (peer->token.size() < token_.size()) {
                const auto part = bytes.substr(0, token_.size() - peer->token.size());
                peer->token += part;
                bytes.remove_prefix(part.size());
                if (peer->token.size() < token_.size()) {
                    return;
                }
                if (!control::equal_in_constant_time(peer->token, token_)) {
                    refuse(peer, "wrong token");
                    return;
                }
            }
            peer->frames.append(bytes);
            while (!closed_ && peer->socket.is_open() && !peer->ending) {
                const auto message = next_message(peer);
                if (!message) {
                    return;
                }
                if (peer->rank < 0) {
                    greet(peer, *message);
                } else {
                    pass_on(peer, *message);
                }
            }
        }

        /// Empty when more has to come, or what came was refused.
        std::optional<FromRank> next_message(const Peer& peer) {
            try {
                if (const auto text = peer->frames.next()) {
                    return parse_from_rank(*text);
                }
            } catch (const LaunchError& error) {
                refuse(peer, error.message());
            }
            return std::nullopt;
        }

        void greet(const Peer& peer, const FromRank& message) {
            const auto* const hello = std::get_if<Hello>(&message);
            if (hello == nullptr) {
                refuse(peer, "its first message is no hello");
                return;
            }
            std::string why;
            if (hello->attempt != options_.attempt) {
                why = detail::concat("it is of attempt ", hello->attempt, ", this is attempt ",
                                     options_.attempt);
            } else if (hello->size != options_.size || hello->rank >= options_.size) {
                why = detail::concat("it calls itself rank ", hello->rank, " of ", hello->size,
                                     ", expected are ", options_.size, " ranks");
            } else if (ranks_.contains(hello->rank)) {
                why = detail::concat("rank ", hello->rank, " is connected already");
            }
            if (!why.empty()) {
                peer->ending = true;
                write(peer, encode(Event{"refused", {{"why", why}}}));
                refused(peer->name, why);
                return;
            }
            Hello known = *hello;
            known.local = peer->local;
            if (peer->local) {
                known.pid = peer->pid;
            }
            peer->rank = hello->rank;
            peer->deadline.cancel();
            peer->frames.set_limit(max_frame);
            pending_.remove(peer);
            ranks_[peer->rank] = peer;
            write(peer, encode(Event{"welcome"}));
            call(handlers_.joined, known);
        }

        void pass_on(const Peer& peer, const FromRank& message) {
            if (const auto* const event = std::get_if<Event>(&message)) {
                call(handlers_.event, peer->rank, *event);
            } else if (const auto* const report = std::get_if<RankReport>(&message);
                       report != nullptr && report->rank == peer->rank) {
                call(handlers_.status, *report);
            } else {
                refuse(peer, detail::concat("rank ", peer->rank, " speaks for another one"));
            }
        }

        void write(const Peer& peer, std::string frame) {
            peer->outgoing.push_back(std::move(frame));
            if (peer->outgoing.size() == 1) {
                write_next(peer);
            }
        }

        /// An error here is one for the read under way, too, which deals with it.
        void write_next(const Peer& peer) {
            boost::asio::async_write(
                peer->socket, boost::asio::buffer(peer->outgoing.front()),
                [self = shared_from_this(), peer](const Code& error, std::size_t /*size*/) {
                    if (self->closed_ || !peer->socket.is_open()) {
                        return;
                    }
                    peer->outgoing.pop_front();
                    if (error && !peer->ending) {
                        return;
                    }
                    if (!peer->outgoing.empty()) {
                        self->write_next(peer);
                    } else if (peer->ending) {
                        self->pending_.remove(peer);
                        end(peer);
                    }
                });
        }

        /// Turns a connection away, at once.
        void refuse(const Peer& peer, const std::string& why) {
            pending_.remove(peer);
            end(peer);
            if (!peer->ending) { // that was told already
                refused(peer->name, why);
            }
            if (peer->rank >= 0 && !closed_) {
                leave(peer);
            }
        }

        void refused(const std::string& who, const std::string& why) {
            if (++refusals_ <= max_refusals_told) {
                call(handlers_.refused, "turned away on the control channel: " + who + ": " + why);
            }
        }

        /// Once a second.
        void tick() {
            if (const int untold = refusals_ - max_refusals_told; untold > 0) {
                call(handlers_.refused,
                     detail::concat("turned away on the control channel: ", untold, " more"));
            }
            refusals_ = 0;
            for (const auto& [rank, peer] : ranks_) {
                if (!peer->local && peer->outgoing.empty()) {
                    write(peer, encode(Event{"ping"}));
                }
            }
            if (!closed_) {
                every_second_.expires_after(ping_interval);
                every_second_.async_wait([self = shared_from_this()](const Code&) {
                    if (!self->closed_) {
                        self->tick();
                    }
                });
            }
        }

        template <class Handler, class... Arguments>
        void call(const Handler& handler, const Arguments&... arguments) {
            if (handler && !closed_) {
                handler(arguments...);
            }
        }

        static void end(const Peer& peer) {
            Code ignored;
            peer->deadline.cancel();
            peer->socket.close(ignored);
        }

        Options options_;
        Handlers handlers_;
        std::string token_;
        ControlAddress address_;
        boost::asio::local::stream_protocol::acceptor local_;
        boost::asio::ip::tcp::acceptor remote_;
        boost::asio::steady_timer every_second_;
        boost::asio::steady_timer accept_again_;
        std::list<Peer> pending_; ///< not yet ranks, oldest first
        std::map<int, Peer> ranks_;
        int refusals_ = 0; ///< in this second
        bool closed_ = false;
    };

    std::shared_ptr<State> state_;
};

} // namespace rtrain::launch
