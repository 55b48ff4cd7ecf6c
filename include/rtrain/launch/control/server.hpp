// SPDX-License-Identifier: Apache-2.0
/// @file
/// The driver's side of the control channel (listener.hpp accepts the connections). A client first
/// sends the token of this attempt, then a Hello; until then it gets 5 s, a few bytes and no JSON
/// parser. See docs/architecture.md.
///
/// @code
/// boost::asio::io_context io;
/// ControlServer server(io, {.attempt = 1, .size = 4, .directory = directory},
///                      {.status = [](const RankReport& report) { ... }});
/// // start mpirun with server.variables() in its environment
/// io.run();
/// @endcode
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/launch/control/address.hpp>
#include <rtrain/launch/control/connection.hpp>
#include <rtrain/launch/control/listener.hpp>
#include <rtrain/launch/control/message.hpp>
#include <rtrain/process/os/token.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::launch {

/// Lives in the thread that runs the io_context. Handlers are called from there, never after
/// close() or the destructor; they may call every member.
class ControlServer {
public:
    struct Options {
        int attempt = 0;
        int size = 1; ///< ranks
        /// Directory of the socket; must belong to this user, with mode 0700.
        std::filesystem::path directory{};
        /// Listens on TCP, too, for ranks on other nodes.
        bool remote = false;
        /// Those nodes, if known: the server listens on the address that routes to them.
        std::vector<std::string> hosts{};
    };
    /// Unset handlers are not called.
    struct Handlers {
        std::function<void(const Hello&)> joined{};
        std::function<void(const RankReport&)> status{};
        std::function<void(int rank, const RankEvent&)> event{};
        /// A rank's connection has ended, after all it sent was handled.
        std::function<void(int rank)> left{};
        /// A connection was refused, for the log. Under many, one call may cover several.
        std::function<void(const std::string& why)> refused{};
    };

    /// Time for a new connection to send the token and its Hello.
    static constexpr std::chrono::seconds handshake_limit{5};
    static constexpr std::chrono::seconds ping_interval{1};
    /// Calls of `refused` in a second; the rest are counted and reported in one call.
    static constexpr int max_refusals_told = 20;

    /// Starts listening. Throws LaunchError [RT-L7].
    ControlServer(boost::asio::io_context& io, Options options, Handlers handlers)
        : state_(std::make_shared<State>(io, std::move(options), std::move(handlers))) {
        state_->start();
    }
    ControlServer(const ControlServer&) = delete;
    ControlServer& operator=(const ControlServer&) = delete;
    ~ControlServer() { close(); }

    /// Environment variables for the ranks. They include the token: not for a command line.
    [[nodiscard]] std::map<std::string, std::string> variables() const {
        return {{ControlAddress::variable, state_->address().text()},
                {ControlAddress::token_variable, state_->token()},
                {ControlAddress::attempt_variable, std::to_string(state_->attempt())}};
    }

    /// Does nothing if the rank is not connected.
    void send(int rank, const DriverEvent& event) { state_->send(rank, encode(event)); }
    /// Sends to each connected rank.
    void send_all(const DriverEvent& event) { state_->send_all(encode(event)); }
    /// Also sends the newest event of its type to ranks that join later.
    void send_all_from_now_on(const DriverEvent& event) {
        state_->send_all_from_now_on(event.index(), encode(event));
    }

    /// Accepts no more connections; removes the socket.
    void stop_listening() { state_->stop_listening(); }

    /// Ends all connections immediately and removes the socket. Ranks that still run exit by
    /// themselves.
    void close() { state_->close(); }

private:
    using Code = boost::system::error_code;

    using Peer = std::shared_ptr<Connection>;

    /// Shared with pending operations, so that the server can be destroyed at any time.
    class State : public std::enable_shared_from_this<State> {
    public:
        State(boost::asio::io_context& io, Options options, Handlers handlers)
            : options_(std::move(options)), handlers_(std::move(handlers)),
              token_(control::random_text(ControlAddress::token_size / 2)),
              listener_(std::make_shared<ControlListener>(
                  io, ControlListener::Options{.directory = options_.directory,
                                               .remote = options_.remote,
                                               .hosts = options_.hosts})),
              every_second_(io) {}
        State(const State&) = delete;
        State& operator=(const State&) = delete;

        void start() {
            listener_->start({.called =
                                  [this](ControlListener::Caller caller) {
                                      begin(std::make_shared<Connection>(std::move(caller)));
                                  },
                              .refused = [this](const std::string& who,
                                                const std::string& why) { refused(who, why); }});
            tick();
        }

        [[nodiscard]] const ControlAddress& address() const { return listener_->address(); }
        [[nodiscard]] const std::string& token() const noexcept { return token_; }
        [[nodiscard]] int attempt() const noexcept { return options_.attempt; }

        void send(int rank, std::string frame) {
            if (const auto found = ranks_.find(rank); found != ranks_.end()) {
                found->second->write(std::move(frame));
            }
        }
        void send_all(const std::string& frame) {
            for (const auto& [rank, peer] : ranks_) {
                peer->write(frame);
            }
        }

        void send_all_from_now_on(std::size_t type, std::string frame) {
            send_all(frame);
            for_later_[type] = std::move(frame);
        }

        void stop_listening() { listener_->close(); }

        void close() {
            if (std::exchange(closed_, true)) {
                return;
            }
            listener_->close();
            every_second_.cancel();
            for (const Peer& peer : pending_) {
                peer->close();
            }
            for (const auto& [rank, peer] : ranks_) {
                peer->close();
            }
            pending_.clear();
            ranks_.clear();
        }

    private:
        /// With too many connections before their Hello, the oldest is refused: an honest one needs
        /// next to no time.
        void begin(const Peer& peer) {
            pending_.push_back(peer);
            if (pending_.size() > std::size_t{4} * static_cast<std::size_t>(options_.size)) {
                refuse(Peer(pending_.front()), "too many connections without a hello");
            }
            peer->deadline.expires_after(handshake_limit);
            peer->deadline.async_wait([self = shared_from_this(), peer](const Code& error) {
                if (!error && !self->closed_ && peer->rank < 0 && peer->caller.socket.is_open()) {
                    self->refuse(peer,
                                 detail::concat("no hello within ", handshake_limit.count(), " s"));
                }
            });
            peer->read([self = shared_from_this(),
                        peer](std::string_view bytes) { self->handle(peer, bytes); },
                       [self = shared_from_this(), peer] { self->lost(peer); });
        }

        void lost(const Peer& peer) {
            if (peer->rank < 0) {
                refuse(peer, "it disconnected before its hello");
            } else {
                leave(peer);
            }
        }

        void leave(const Peer& peer) {
            peer->close();
            ranks_.erase(peer->rank);
            call(handlers_.left, peer->rank);
        }

        void handle(const Peer& peer, std::string_view bytes) {
            const auto right = peer->shows(token_, bytes);
            if (!right) {
                return;
            }
            if (!*right) {
                refuse(peer, "wrong token");
                return;
            }
            peer->frames.append(bytes);
            while (peer->is_open()) {
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

        /// Empty if the frame is incomplete or was refused.
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
                refuse(peer, "its first message is not a hello");
                return;
            }
            std::string why;
            if (hello->attempt != options_.attempt) {
                why = detail::concat("it belongs to attempt ", hello->attempt, ", this is attempt ",
                                     options_.attempt);
            } else if (hello->size != options_.size || hello->rank >= options_.size) {
                why = detail::concat("it claims to be rank ", hello->rank, " of ", hello->size,
                                     ", but there are ", options_.size, " ranks");
            } else if (ranks_.contains(hello->rank)) {
                why = detail::concat("rank ", hello->rank, " is connected already");
            }
            if (!why.empty()) {
                peer->write_last(encode(DriverEvent(event::Refused{why})),
                                 [self = shared_from_this(),
                                  it = peer.get()] { // not a Peer: a cycle of shared pointers
                                     self->pending_.remove_if(
                                         [it](const Peer& other) { return other.get() == it; });
                                 });
                refused(peer->caller.name, why);
                return;
            }
            Hello known = *hello;
            known.local = peer->caller.local;
            if (peer->caller.local) {
                known.pid = peer->caller.pid;
            }
            peer->rank = hello->rank;
            peer->deadline.cancel();
            peer->frames.set_limit(max_frame);
            pending_.remove(peer);
            ranks_[peer->rank] = peer;
            peer->write(encode(DriverEvent(event::Welcome{})));
            for (const auto& [type, frame] : for_later_) {
                peer->write(frame);
            }
            call(handlers_.joined, known);
        }

        void pass_on(const Peer& peer, const FromRank& message) {
            if (const auto* const event = std::get_if<RankEvent>(&message)) {
                call(handlers_.event, peer->rank, *event);
            } else if (const auto* const report = std::get_if<RankReport>(&message);
                       report != nullptr && report->rank == peer->rank) {
                call(handlers_.status, *report);
            } else {
                refuse(peer,
                       detail::concat("rank ", peer->rank, " sent a report of a different rank"));
            }
        }

        /// Refuses a connection and closes it immediately.
        void refuse(const Peer& peer, const std::string& why) {
            pending_.remove(peer);
            peer->close();
            if (!peer->is_told()) {
                refused(peer->caller.name, why);
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

        /// Called every second.
        void tick() {
            if (const int untold = refusals_ - max_refusals_told; untold > 0) {
                call(handlers_.refused,
                     detail::concat("turned away on the control channel: ", untold, " more"));
            }
            refusals_ = 0;
            for (const auto& [rank, peer] : ranks_) {
                if (!peer->caller.local && !peer->has_outgoing()) {
                    peer->write(encode(DriverEvent(event::Ping{})));
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

        Options options_;
        Handlers handlers_;
        std::string token_;
        std::shared_ptr<ControlListener> listener_;
        boost::asio::steady_timer every_second_;
        std::list<Peer> pending_; ///< not yet ranks, oldest first
        std::map<int, Peer> ranks_;
        std::map<std::size_t, std::string> for_later_; ///< frames for ranks that join
        int refusals_ = 0;                             ///< in this second
        bool closed_ = false;
    };

    std::shared_ptr<State> state_;
};

} // namespace rtrain::launch
