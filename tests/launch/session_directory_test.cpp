// SPDX-License-Identifier: Apache-2.0
// The directory that processes of a session share: its records, and when it goes.
#include "support/files.hpp"

#include <rtrain/launch/session_directory.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <thread>
#include <vector>

using rtrain::launch::SessionDirectory;

TEST_CASE("SessionDirectory.records_are_there_for_processes_that_start_later") {
    int removed = 0;
    SessionDirectory mine([&] { ++removed; });
    CHECK(mine.known_path().empty());
    mine.keep("fit-0.json", "first"); // before there is a directory
    CHECK(!mine.read("fit-0.json"));
    const auto path = mine.path();
    CHECK(mine.read("fit-0.json") == "first");
    mine.keep("fit-0.json", "second");
    mine.write("config-1.json", "{}");
    SessionDirectory other([] {});
    other.join(path);
    CHECK(other.read("fit-0.json") == "second");
    CHECK(other.read("config-1.json") == "{}");
    CHECK(!other.read("config-2.json"));
    mine.forget("config-1.json");
    CHECK(!other.read("config-1.json"));
    mine.remove();
    CHECK(removed == 1);
    CHECK(!std::filesystem::exists(path));
    CHECK(mine.path() != path); // made again
    CHECK(mine.read("fit-0.json") == "second");
    CHECK(!mine.read("config-1.json"));
}

TEST_CASE("SessionDirectory.it_stays_until_the_last_driver_ends") {
    SessionDirectory session([] {});
    auto first = session.use();
    auto second = session.use();
    const auto path = session.path();
    const auto memory = session.shared_memory();
    first.reset();
    session.remove();
    CHECK(std::filesystem::exists(path));
    second.reset();
    CHECK(!std::filesystem::exists(path));
    CHECK((!memory || !std::filesystem::exists(*memory)));
}

TEST_CASE("SessionDirectory.drivers_come_and_go_in_threads") {
    SessionDirectory session([] {});
    std::vector<std::thread> drivers;
    for (int driver = 0; driver < 4; ++driver) {
        drivers.emplace_back([&session, driver] {
            const std::string record = "fit-" + std::to_string(driver);
            for (int i = 0; i < 50; ++i) {
                const auto use = session.use();
                session.keep(record, std::to_string(i));
                CHECK(std::filesystem::exists(session.path()));
                CHECK(session.read(record) == std::to_string(i));
            }
        });
    }
    for (std::thread& driver : drivers) {
        driver.join();
    }
    CHECK(session.known_path().empty());
}
