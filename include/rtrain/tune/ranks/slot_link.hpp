// SPDX-License-Identifier: Apache-2.0
/// @file
/// The connection between rank 0 of a search in one mpirun and its slots: TCP, with a token that
/// MPI distributes to the ranks of this mpirun only. Both sides: slots.hpp, slot_agent.hpp.
///
/// A line of JSON is a message; a state of a trial follows its message as bytes.
///   to rank 0: hello (once), report, saved, returned, failed
///   to a slot: trial, verdict, end (once)
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/text/strict_stream.hpp>
#include <rtrain/launch/control/own_address.hpp>
#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/process/os/token.hpp>
#include <rtrain/tune/controller/plan.hpp>
#include <rtrain/tune/processes/trial_channel.hpp>
#include <rtrain/tune/threads/function_runner.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/json/object.hpp>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

namespace rtrain::tune::internal {

/// Time limit for the ranks of one mpirun to connect to rank 0.
inline constexpr std::chrono::seconds joining_limit{60};

[[nodiscard]] inline SearchBroken cannot_join(const std::string& why) {
    return {"RT-U114", "the ranks of this search cannot connect: " + why};
}

/// The address of rank 0, and the token that identifies callers of this mpirun.
struct SlotAddress {
    std::string host{}; ///< numeric address
    unsigned short port = 0;
    std::string token{};

    [[nodiscard]] std::string text() const {
        return host + " " + std::to_string(port) + " " + token;
    }
    [[nodiscard]] static SlotAddress from(const std::string& text) {
        SlotAddress address;
        auto words = rtrain::detail::strict(std::istringstream(text));
        words >> address.host >> address.port >> address.token;
        return address;
    }
    [[nodiscard]] boost::asio::ip::tcp::endpoint endpoint() const {
        return {boost::asio::ip::make_address(host), port};
    }
};

/// Longest wait of a socket for one send or receive; 0: no limit.
inline void limit_waits(int socket, std::chrono::seconds limit) {
    const timeval time{.tv_sec = limit.count(), .tv_usec = 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

/// Detects a peer whose machine is gone within half a minute, and ends the connection.
inline void watch_peer(int socket) {
    const auto set = [socket](int level, int option, int value) {
        ::setsockopt(socket, level, option, &value, sizeof value);
    };
    constexpr int idle_s = 10;
    constexpr int between_s = 5;
    constexpr int most = 4;
    constexpr int unanswered_ms = 30'000;
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
    set(IPPROTO_TCP, TCP_KEEPINTVL, between_s);
    set(IPPROTO_TCP, TCP_KEEPCNT, most);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, unanswered_ms);
}

/// The listening socket of rank 0.
class SlotListener {
public:
    /// Throws SearchBroken [RT-U114].
    explicit SlotListener(bool one_node) {
        boost::asio::io_context io;
        const auto own =
            one_node ? boost::asio::ip::address_v4::loopback() : launch::own_address(io, {});
        boost::asio::ip::tcp::endpoint place(own, 0);
        socket_ =
            process::Descriptor(::socket(place.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
        auto size = static_cast<socklen_t>(place.capacity());
        if (::bind(socket_.get(), place.data(), static_cast<socklen_t>(place.size())) != 0 ||
            ::listen(socket_.get(), SOMAXCONN) != 0 ||
            ::getsockname(socket_.get(), place.data(), &size) != 0) {
            throw cannot_join("rank 0 cannot listen at " + own.to_string() + ": " +
                              std::strerror(errno));
        }
        place.resize(size);
        constexpr std::size_t bytes = 16;
        address_ = {own.to_string(), place.port(), launch::control::random_text(bytes)};
    }

    [[nodiscard]] const SlotAddress& address() const noexcept { return address_; }
    [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
    [[nodiscard]] process::Descriptor accept() const {
        return process::Descriptor(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }

private:
    process::Descriptor socket_;
    SlotAddress address_;
};

/// Throws SearchBroken [RT-U114].
[[nodiscard]] inline LineConnection connect_to_slots(const SlotAddress& address) {
    const auto place = address.endpoint();
    process::Descriptor socket(::socket(place.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    limit_waits(socket.get(), joining_limit);
    if (::connect(socket.get(), place.data(), static_cast<socklen_t>(place.size())) != 0) {
        throw cannot_join("rank 0 cannot be reached at " + address.host + ":" +
                          std::to_string(address.port) + ": " + std::strerror(errno));
    }
    limit_waits(socket.get(), std::chrono::seconds(0));
    watch_peer(socket.get());
    return LineConnection(std::move(socket));
}

[[nodiscard]] inline boost::json::object to_json(const Assignment& trial) {
    boost::json::object saved{
        {"trial", trial.trial},           {"name", trial.name},
        {"config", trial.config},         {"directory", trial.directory.string()},
        {"reports", trial.reports},       {"state", trial.state},
        {"taken_over", trial.taken_over}, {"base_reports", trial.base_reports}};
    if (trial.time_limit_s) {
        saved["time_limit_s"] = *trial.time_limit_s;
    }
    return saved;
}

[[nodiscard]] inline Assignment assignment_from(const boost::json::object& saved) {
    const auto text = [&](const char* name) { return std::string(saved.at(name).as_string()); };
    const auto* const limit = saved.if_contains("time_limit_s");
    return {.trial = text("trial"),
            .name = text("name"),
            .config = saved.at("config").as_object(),
            .directory = text("directory"),
            .reports = saved.at("reports").to_number<std::int64_t>(),
            .state = text("state"),
            .taken_over = saved.at("taken_over").to_number<int>(),
            .base_reports = saved.at("base_reports").to_number<std::int64_t>(),
            .time_limit_s = limit != nullptr ? json::number(*limit) : std::nullopt};
}

} // namespace rtrain::tune::internal
