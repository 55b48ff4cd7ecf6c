// SPDX-License-Identifier: Apache-2.0
// An elastic run that looks for more room.
#include "support/files.hpp"

#include <rtrain/launch/supervise/room_watch.hpp>

#include <doctest/doctest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <chrono>

using namespace std::chrono_literals;

TEST_CASE("RoomWatch.it_looks_until_more_ranks_fit_and_are_wanted") {
    const test::Directory directory("room");
    const auto hosts = directory.path() / "hosts";
    test::write(hosts, "localhost slots=2\n");
    const rtrain::ScalingConfig scaling{.num_workers = {1, 4},
                                        .mpirun_args = {"--hostfile", hosts.string()},
                                        .elastic_resize_monitor_interval_s = 0.01};
    boost::asio::io_context io;
    const auto others = boost::asio::make_work_guard(io); // as a driver has
    int found = 0;
    rtrain::launch::RoomWatch room(io, scaling, [&] {
        ++found;
        if (found == 2) { // the first time it does not suit
            io.stop();
        }
        return found == 2;
    });
    room.watch(2);
    io.run_for(300ms);
    CHECK(found == 0); // two slots, two ranks
    test::write(hosts, "localhost slots=3\n");
    io.restart();
    io.run_for(60s);
    io.restart();
    io.run_for(300ms);
    CHECK(found == 2); // it no longer looks
}

TEST_CASE("RoomWatch.it_does_not_look_when_stopped_or_when_all_ranks_run") {
    const rtrain::ScalingConfig scaling{.num_workers = {1, 2},
                                        .elastic_resize_monitor_interval_s = 0.01};
    boost::asio::io_context io;
    rtrain::launch::RoomWatch room(io, scaling, [&]() -> bool {
        FAIL("found room");
        return true;
    });
    room.watch(2); // all that are wanted
    io.run_for(100ms);
    io.restart();
    room.watch(1);
    room.stop();
    io.run_for(100ms);
}
