// SPDX-License-Identifier: Apache-2.0
// Every file system behaves alike, and URIs lead to the right one.
#include "support.hpp"

#include <doctest/doctest.h>

#include <thread>

using namespace test;

namespace {

std::vector<std::string> names(const std::vector<Entry>& entries) {
    std::vector<std::string> found;
    for (const auto& entry : entries) {
        found.push_back(entry.name + (entry.is_directory ? "/" : ""));
    }
    std::ranges::sort(found);
    return found;
}

/// What the concept cannot say. `base` is a directory that does not exist yet.
void check_conformance(const AnyFilesystem& files, const std::string& base) {
    using Names = std::vector<std::string>;
    const Directory local("conformance");

    // Nothing is there, and that is no error.
    CHECK_FALSE(files.exists(base));
    CHECK(files.list(base).empty());
    files.remove(base);
    CHECK_FALSE(caught([&] { static_cast<void>(files.read(base + "/none")); }).code.empty());
    CHECK_FALSE(
        caught([&] { files.download(base + "/none", local.path() / "none"); }).code.empty());
    CHECK(fs::is_empty(local.path()));

    // Written, read, replaced; with the directories above.
    const std::string text = noise(100'000, 1) + std::string(3, '\0') + "\r\n";
    files.write(base + "/deep/er/a.bin", text);
    CHECK(files.read(base + "/deep/er/a.bin") == text);
    files.write(base + "/deep/er/a.bin", "new");
    CHECK(files.read(base + "/deep/er/a.bin") == "new");
    files.write(base + "/empty", "");
    CHECK(files.read(base + "/empty").empty());
    files.write(base + "/odd name+%41=&.txt", "odd");
    CHECK(files.read(base + "/odd name+%41=&.txt") == "odd");

    // Only direct children, with sizes.
    files.write(base + "/file", "12345");
    CHECK(names(files.list(base)) == Names{"deep/", "empty", "file", "odd name+%41=&.txt"});
    CHECK(names(files.list(base + "/deep")) == Names{"er/"});
    for (const auto& entry : files.list(base)) {
        CHECK(entry.size == (entry.name == "file"                 ? 5
                             : entry.name == "odd name+%41=&.txt" ? 3
                                                                  : 0));
    }
    CHECK(files.exists(base + "/file"));
    CHECK(files.exists(base + "/deep"));
    CHECK_FALSE(files.exists(base + "/fil"));
    CHECK_FALSE(files.exists(base + "/dee"));

    // Local files there and back, in more than one part.
    const std::string big = noise((33U << 20U) + 12'345, 2);
    std::ofstream(local.path() / "big", std::ios::binary) << big;
    files.upload(local.path() / "big", base + "/up/big");
    files.download(base + "/up/big", local.path() / "back");
    CHECK((read_file(local.path() / "back") == big));
    std::ofstream(local.path() / "nothing").flush();
    files.upload(local.path() / "nothing", base + "/up/nothing");
    files.download(base + "/up/nothing", local.path() / "back");
    CHECK(fs::file_size(local.path() / "back") == 0);
    CHECK_FALSE(
        caught([&] { files.upload(local.path() / "none", base + "/up/none"); }).code.empty());
    CHECK(names(files.list(base + "/up")) == Names{"big", "nothing"});

    // A file, then a directory with all in it; neighbours stay.
    files.remove(base + "/deep/er/a.bin");
    CHECK_FALSE(files.exists(base + "/deep/er/a.bin"));
    files.write(base + "/up2/x", "x");
    files.remove(base + "/up");
    CHECK_FALSE(files.exists(base + "/up/big"));
    CHECK_FALSE(files.exists(base + "/up"));
    CHECK(files.exists(base + "/up2/x"));

    // Several threads at once.
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            for (int k = 0; k < 5; ++k) {
                const auto path = rtrain::detail::concat(base, "/threads/", i, '-', k);
                files.write(path, path);
                static_cast<void>(files.list(base + "/threads"));
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    CHECK(files.list(base + "/threads").size() == 20);
    files.remove(base);
    CHECK_FALSE(files.exists(base));
    CHECK(files.list(base).empty());
}

} // namespace

TEST_CASE("Filesystem.local_conforms") {
    const Directory directory("local");
    const auto [files, path] = locate(directory.path() / "run");
    CHECK(files.is_local());
    CHECK(files.uri(path) == path);
    check_conformance(files, path);
}

TEST_CASE("Filesystem.s3_conforms") {
    Server server("s3");
    const auto [files, path] = locate(server.uri("bucket/team/run"), quick());
    CHECK_FALSE(files.is_local());
    CHECK(files.uri(path) == "s3://bucket/team/run");
    check_conformance(files, path);
    // Arrow leaves a marker of the empty directory above; nobody sees it.
    CHECK(files.list("bucket").empty());
    CHECK_FALSE(files.exists("bucket/team"));
}

TEST_CASE("Filesystem.google_cloud_storage_conforms") {
    Server server("gcs");
    const auto [files, path] = locate(server.uri("bucket/team/run"), quick());
    CHECK(files.uri(path) == "gs://bucket/team/run");
    check_conformance(files, path);
}

TEST_CASE("Filesystem.ones_own_conforms") {
    check_conformance(Memory{}, "team/run");
    const Memory memory;
    register_scheme("memory", [memory](const Uri& uri, const TransferConfig&) {
        return Location{AnyFilesystem(memory, "memory"), uri.authority + uri.path};
    });
    locate("memory://team").filesystem.write("team/x", "shared");
    const auto [files, path] = locate("memory://team/x");
    CHECK(files.read(path) == "shared");
    CHECK(files.uri(path) == "memory://team/x");
}

TEST_CASE("Locate.paths_and_file_uris_are_local") {
    for (const auto& [text, path] :
         std::map<std::string, std::string>{{"results", "results"},
                                            {"/nfs/results", "/nfs/results"},
                                            {"a:b//c", "a:b//c"},
                                            {"file:///results/", "/results"},
                                            {"FILE:///a%20b", "/a b"},
                                            {"file://localhost/results", "/results"},
                                            {"file:///", "/"}}) {
        const auto found = locate(text);
        CHECK(found.filesystem.is_local());
        CHECK(found.path == path);
    }
    CHECK(caught([] { static_cast<void>(locate("file://host/results")); }).code == "RT-S9");
}

TEST_CASE("Locate.user_information_is_refused_and_not_repeated") {
    for (const std::string scheme : {"s3", "gs", "hdfs", "abfs", "memory2"}) {
        for (const auto& user :
             std::vector<std::string>{canary_id + ":" + canary_key, "CANARYID:canary0123",
                                      "CANARY:canary/with/slashes"}) {
            const auto error =
                caught([&] { static_cast<void>(locate(scheme + "://" + user + "@bucket/run")); });
            CHECK(error.code == "RT-S8");
            CHECK_FALSE(contains(error.text, "CANARY"));
            CHECK_FALSE(contains(error.text, "canary"));
        }
    }
    const auto error = caught([] { static_cast<void>(locate("s3://CANARY@bucket/run")); });
    CHECK(error.code == "RT-S8");
    CHECK(contains(error.text, "AWS_SECRET_ACCESS_KEY"));
    CHECK_FALSE(contains(error.text, "CANARY"));
    // Nor in an option.
    for (const std::string query :
         {"secret_key=canary", "canary", "endpoint_override=canary@host"}) {
        const auto refused = caught([&] { static_cast<void>(locate("s3://bucket/run?" + query)); });
        CHECK(refused.code == "RT-S9");
        CHECK_FALSE(contains(refused.text, "canary"));
        CHECK(contains(refused.text, "endpoint_override"));
    }
}

TEST_CASE("Locate.an_unknown_scheme_says_what_to_do") {
    const auto error = caught([] { static_cast<void>(locate("s4://bucket/run")); });
    CHECK(error.code == "RT-S9");
    CHECK(contains(error.text, "register_scheme"));
    CHECK(caught([] { static_cast<void>(locate("s3:///run")); }).code == "RT-S9");
    // No Java machine here.
    const auto hdfs = caught([] { static_cast<void>(locate("hdfs://127.0.0.1:9/run")); });
    CHECK(hdfs.code == "RT-S10");
    CHECK(contains(hdfs.text, "hdfs://127.0.0.1:9/run"));
    CHECK_FALSE(contains(hdfs.text, "\n"));
}
