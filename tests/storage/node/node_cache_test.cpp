// SPDX-License-Identifier: Apache-2.0
// Processes of one node share one download.
#include "storage/services.hpp"

#include <rtrain/storage/node/node_cache.hpp>

#include <doctest/doctest.h>

#include <optional>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace test;

namespace {

/// A remote checkpoint and a temporary directory for the copies.
struct Node {
    Node() : remote(locate(server.uri("bucket/run"), quick())), temporary("node") {
        ::setenv("TMPDIR", temporary.path().c_str(), 1);
        remote.filesystem.write(remote.path + "/a", text);
        remote.filesystem.write(remote.path + "/b", "b");
    }
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
    ~Node() { ::unsetenv("TMPDIR"); }

    std::unique_ptr<Child> user(const std::string& deadline_s = "30") {
        return std::make_unique<Child>(
            std::vector<std::string>{RTRAIN_TEST_NODE_USER, server.uri("bucket/run"), deadline_s},
            std::map<std::string, std::string>{}, true);
    }
    int downloads() { return server.count("GET", "/bucket/run/a"); }
    NodeCopy copy(const std::string& version = "1") const {
        return copy_to_node(remote.filesystem, remote.path, remote.filesystem.list(remote.path),
                            version, quick());
    }
    [[nodiscard]] fs::path cache() const {
        return temporary.path() / ("rtrain-cache-" + std::to_string(::geteuid()));
    }

    std::string text = noise(1U << 20U, 1);
    Server server{"s3"};
    Location remote;
    Directory temporary;
};

} // namespace

TEST_CASE("NodeCache.four_processes_download_once") {
    Node node;
    std::vector<std::unique_ptr<Child>> users;
    node.server.faults(R"("latency_s": 0.2)"); // so that they meet
    for (int i = 0; i < 4; ++i) {
        users.push_back(node.user());
    }
    std::vector<std::string> directories;
    for (auto& user : users) {
        CHECK(user->receive() == "found");
        directories.push_back(user->receive());
        CHECK(directories.back() == directories.front());
        CHECK((read_file(fs::path(directories.back()) / "a") == node.text));
        CHECK(read_file(fs::path(directories.back()) / "b") == "b");
    }
    CHECK(node.downloads() == 1);
    struct stat status = {};
    REQUIRE(::stat(directories.front().c_str(), &status) == 0);
    CHECK((status.st_mode & 0777U) == 0700);
    // The last one removes it, not the first.
    while (!users.empty()) {
        CHECK(fs::exists(fs::path(directories.front()) / "a"));
        users.back()->end_input();
        CHECK(users.back()->wait() == 0);
        users.pop_back();
    }
    CHECK(fs::is_empty(node.cache()));
}

TEST_CASE("NodeCache.a_forked_process_does_not_remove_the_copy") {
    const Node node;
    std::optional<NodeCopy> copy = node.copy();
    const pid_t child = ::fork();
    if (child == 0) {
        copy.reset();
        ::_exit(0);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK((read_file(copy->directory() / "a") == node.text));
    copy.reset();
    CHECK(fs::is_empty(node.cache()));
}

TEST_CASE("NodeCache.what_a_killed_process_left_is_used_when_complete") {
    Node node;
    auto first = node.user();
    CHECK(first->receive() == "found");
    const auto before = first->receive();
    first->kill();
    first->wait();
    // Complete, so the next one needs no download.
    auto second = node.user();
    CHECK(second->receive() == "found");
    CHECK(second->receive() == before);
    CHECK(node.downloads() == 1);
    second->kill();
    second->wait();

    // Not complete: downloaded anew.
    fs::resize_file(fs::path(before) / "a", 5);
    auto third = node.user();
    CHECK(third->receive() == "found");
    CHECK(third->receive() == before);
    CHECK((read_file(fs::path(before) / "a") == node.text));
    CHECK(node.downloads() == 2);
}

TEST_CASE("NodeCache.a_downloader_killed_in_the_middle_is_noticed_by_those_who_wait") {
    Node node;
    node.server.faults(R"("stall_rate": 1, "only": "GET", "path": "/bucket/run/a")");
    auto first = node.user();
    CHECK(first->receive() == "found");
    while (node.downloads() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    auto second = node.user();
    CHECK(second->receive() == "found");
    node.server.faults("");
    first->kill();
    first->wait();
    const auto directory = second->receive();
    CHECK((read_file(fs::path(directory) / "a") == node.text));
    CHECK(node.downloads() == 2);
}

TEST_CASE("NodeCache.who_waits_too_long_ends_in_an_error") {
    Node node;
    const auto entries = node.remote.filesystem.list(node.remote.path);
    node.server.faults(R"("stall_rate": 1, "only": "GET", "path": "/bucket/run/a")");
    auto first = node.user();
    CHECK(first->receive() == "found");
    while (node.downloads() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    auto config = quick();
    config.deadline_s = 0.5;
    const auto error = caught([&] {
        static_cast<void>(
            copy_to_node(node.remote.filesystem, node.remote.path, entries, "1", config));
    });
    CHECK(error.code == "RT-S12");
    CHECK(contains(error.text, "another process"));
    CHECK(error.seconds < 30);
    CHECK(node.downloads() == 1);
    first->kill();
}

TEST_CASE("NodeCache.an_error_of_the_download_leaves_nothing") {
    Node node;
    auto entries = node.remote.filesystem.list(node.remote.path);
    node.server.faults(R"("error_rate": 1.0, "error_status": 503)");
    const auto error = caught([&] {
        static_cast<void>(
            copy_to_node(node.remote.filesystem, node.remote.path, entries, "1", quick()));
    });
    CHECK(error.transient);
    CHECK(fs::is_empty(node.cache()));
    node.server.faults("");
    entries[0].size += 1; // the manifest says otherwise
    CHECK(caught([&] {
              static_cast<void>(
                  copy_to_node(node.remote.filesystem, node.remote.path, entries, "1", quick()));
          }).code == "RT-S13");
    CHECK(fs::is_empty(node.cache()));
}

TEST_CASE("NodeCache.versions_and_copies_are_apart_and_left_overs_vanish") {
    Node node;
    {
        const auto first = node.copy();
        const auto same = node.copy();
        const auto other = node.copy("2");
        CHECK(first.directory() == same.directory());
        CHECK(first.directory() != other.directory());
        CHECK(node.downloads() == 2);
        auto moved = first;
        CHECK(fs::exists(moved.directory() / "b"));
    }
    CHECK(fs::is_empty(node.cache()));
    auto killed = node.user();
    CHECK(killed->receive() == "found");
    const fs::path left = killed->receive();
    killed->kill();
    killed->wait();
    CHECK(fs::exists(left));
    const auto other = node.copy("2");
    CHECK_FALSE(fs::exists(left));
}

TEST_CASE("NodeCache.a_directory_that_others_could_enter_is_refused") {
    Node node;
    fs::create_directory(node.cache());
    fs::permissions(node.cache(), fs::perms(0755));
    CHECK(caught([&] { static_cast<void>(node.copy()); }).code == "RT-S14");
    fs::remove(node.cache());
    fs::create_directory_symlink(node.temporary.path(), node.cache());
    CHECK(caught([&] { static_cast<void>(node.copy()); }).code == "RT-S14");
}
