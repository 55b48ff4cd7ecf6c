// SPDX-License-Identifier: Apache-2.0
/// @file
/// Selects the network address of this machine that other nodes can reach.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/udp.hpp>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

namespace rtrain::launch {

namespace control {

/// The source address of packets from here to `target`; empty without a route, or if it is
/// this machine. Sends nothing.
[[nodiscard]] inline std::optional<boost::asio::ip::address>
address_towards(boost::asio::io_context& io, const boost::asio::ip::address& target) {
    constexpr unsigned short any_port = 9;
    const boost::asio::ip::udp::endpoint end(target, any_port);
    boost::system::error_code error;
    boost::asio::ip::udp::socket socket(io);
    socket.open(end.protocol(), error);
    if (!error) {
        socket.connect(end, error);
    }
    if (error) {
        return std::nullopt;
    }
    const auto address = socket.local_endpoint(error).address();
    if (error || address.is_loopback() || address.is_unspecified() || address == target) {
        return std::nullopt;
    }
    return address;
}

/// The first IPv4 address of an interface that is up and not loopback.
[[nodiscard]] inline std::optional<boost::asio::ip::address> first_outer_address() {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) {
        return std::nullopt;
    }
    std::optional<boost::asio::ip::address> found;
    for (const ifaddrs* one = all; one != nullptr && !found; one = one->ifa_next) {
        if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET &&
            (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0) {
            sockaddr_in address{};
            std::memcpy(&address, one->ifa_addr, sizeof address);
            found = boost::asio::ip::address_v4(ntohl(address.sin_addr.s_addr));
        }
    }
    ::freeifaddrs(all);
    return found;
}

} // namespace control

/// The address on the route to the first reachable one of `hosts` (names or addresses) that is
/// another machine. Otherwise the one on the default route, that of the first interface, or
/// loopback. Never all interfaces. Uses the resolver, so it can take seconds.
[[nodiscard]] inline boost::asio::ip::address own_address(boost::asio::io_context& io,
                                                          const std::vector<std::string>& hosts) {
    for (const std::string& host : hosts) {
        boost::system::error_code error;
        boost::asio::ip::udp::resolver resolver(io);
        for (const auto& entry : resolver.resolve(host, "", error)) {
            if (const auto address = control::address_towards(io, entry.endpoint().address())) {
                return *address;
            }
        }
    }
    // An address reserved for documentation, to find the default route.
    const auto elsewhere = boost::asio::ip::make_address("192.0.2.1");
    if (const auto address = control::address_towards(io, elsewhere)) {
        return *address;
    }
    return control::first_outer_address().value_or(boost::asio::ip::address_v4::loopback());
}

} // namespace rtrain::launch
