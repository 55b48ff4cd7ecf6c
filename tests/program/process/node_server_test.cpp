// SPDX-License-Identifier: Apache-2.0
// What the preload servers of several nodes are made of. Whole ones: nodes_test.py.
#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/program/process/awaited_signals.hpp>
#include <rtrain/program/process/node_server.hpp>
#include <rtrain/program/process/preload_socket.hpp>
#include <rtrain/program/process/run_lease.hpp>

#include <boost/system/system_error.hpp>
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

using rtrain::program::AwaitedSignals;
using rtrain::program::NodeServer;
using rtrain::program::PreloadListener;
using rtrain::program::RunLease;

TEST_CASE("RunLease.ends_with_its_owner") {
    std::optional<RunLease> lease(std::in_place, std::vector<std::string>{});
    const std::string address = lease->address();
    const auto before = RunLease::hold(address);
    lease->accept();
    const auto waiting = RunLease::hold(address);
    CHECK_FALSE(RunLease::has_ended(before));
    CHECK_FALSE(RunLease::has_ended(waiting));
    lease.reset();
    for (const auto* const held : {&before, &waiting}) {
        pollfd end{held->get(), POLLIN, 0};
        constexpr int limit_ms = 30'000;
        CHECK(::poll(&end, 1, limit_ms) == 1);
        CHECK(RunLease::has_ended(*held));
    }
    CHECK_THROWS_AS((void)RunLease::hold(address), boost::system::system_error);
}

TEST_CASE("PreloadSocket.a_name_is_free_after_its_listener") {
    const std::string address =
        NodeServer::address_for("rtrain-test-" + std::to_string(::getpid()));
    CHECK(rtrain::program::connect_to_preload(address).get() < 0);
    {
        const auto listener = PreloadListener::at(address);
        REQUIRE(listener);
        CHECK_FALSE(PreloadListener::at(address));
        CHECK(rtrain::program::connect_to_preload(address).get() >= 0);
    }
    CHECK(rtrain::program::connect_to_preload(address).get() < 0);
    CHECK(PreloadListener::at(address));
}

TEST_CASE("NodeServer.address_of_a_run") {
    const std::string run = "rtrain-preload-" + std::string(32, '0');
    const std::string address = NodeServer::address_for(run);
    CHECK(address == NodeServer::address_for(run));
    CHECK(address.starts_with("@" + run));
    CHECK(address.size() < sizeof sockaddr_un{}.sun_path);
}

TEST_CASE("AwaitedSignals.are_received_once") {
    sigset_t before;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
    AwaitedSignals::block();
    {
        const AwaitedSignals signals;
        std::raise(SIGUSR1);
        CHECK(signals.next(-1, std::chrono::seconds(30)) == SIGUSR1);
        CHECK(signals.next(-1, std::chrono::seconds(0)) == 0);
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}
