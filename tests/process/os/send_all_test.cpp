// SPDX-License-Identifier: Apache-2.0
#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/process/os/send_all.hpp>

#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <string>
#include <thread>

#include <sys/socket.h>

TEST_CASE("SendAll.sends_more_than_a_socket_holds") {
    using namespace rtrain::process;
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    const Descriptor own(ends[0]);
    std::optional<Descriptor> other(ends[1]);
    const std::string text(4 << 20, 'x');
    std::string received;
    std::thread reader([&] {
        std::array<char, 65536> part{};
        while (received.size() < text.size()) {
            received.append(part.data(), static_cast<std::size_t>(
                                             ::recv(other->get(), part.data(), part.size(), 0)));
        }
    });
    CHECK(send_all(own.get(), text));
    reader.join();
    CHECK(received == text);
    other.reset();
    CHECK(!send_all(own.get(), text));
}
