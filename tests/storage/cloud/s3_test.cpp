// SPDX-License-Identifier: Apache-2.0
// A real server that is slow, fails at random, or dies.
#include "storage/services.hpp"

#include <doctest/doctest.h>

#include <atomic>

using namespace test;

namespace {

/// Files of different sizes, some of several parts, one in a directory below.
struct Files {
    explicit Files(const fs::path& directory) {
        fs::create_directories(directory / "deep/er");
        const std::vector<std::size_t> sizes{0, 1, 1000, 1U << 20U, 5'000'000, 36U << 20U};
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            names.push_back((i == 2 ? "deep/er/file-" : "file-") + std::to_string(i));
            bytes += sizes[i];
            std::ofstream(directory / names.back(), std::ios::binary)
                << noise(sizes[i], static_cast<unsigned int>(i));
        }
    }
    [[nodiscard]] bool equal(const fs::path& a, const fs::path& b) const {
        return std::ranges::all_of(
            names, [&](const auto& name) { return read_file(a / name) == read_file(b / name); });
    }
    std::vector<std::string> names;
    std::uint64_t bytes = 0;
};

void require_no_secret(const Caught& error) {
    CHECK_FALSE(contains(error.text, canary_id));
    CHECK_FALSE(contains(error.text, canary_key));
    CHECK_FALSE(contains(error.text, "endpoint_override"));
}

} // namespace

TEST_CASE("S3.files_go_there_and_back_with_progress") {
    Server server("s3");
    const Directory local("transfer");
    const Directory back("back");
    const Files files(local.path());
    const auto [remote, path] = locate(server.uri("bucket/run"), quick());
    auto config = quick();
    std::vector<TransferProgress> seen;
    config.progress = [&](const TransferProgress& progress) { seen.push_back(progress); };
    upload_files(remote, local.path(), files.names, path, config);
    REQUIRE(seen.size() == files.names.size());
    CHECK(seen.back().bytes_done == files.bytes);
    CHECK(seen.back().bytes_total == files.bytes);
    download_files(remote, path, files.names, back.path(), config);
    CHECK(seen.size() == 2 * files.names.size());
    CHECK(files.equal(local.path(), back.path()));
    CHECK(server.open_uploads() == 0);
    // The big file came in parts.
    CHECK(server.count("GET", "/bucket/run/file-5") > 2);
    CHECK(caught([&] {
              download_files(remote, path, {"file-0", "none"}, back.path(), config);
          }).code == "RT-S10");
    for (const std::string elsewhere : {"../x", "/x", "a//b", "a/../../b", ""}) {
        CHECK(caught([&] {
                  download_files(remote, path, {elsewhere}, back.path(), config);
              }).code == "RT-S15");
    }
    CHECK(caught([&] { upload_files(remote, local.path(), {"none"}, path, config); }).code ==
          "RT-S4");
}

TEST_CASE("S3.a_progress_that_throws_ends_the_transfer") {
    Server server("s3");
    const Directory local("throws");
    const Files files(local.path());
    const auto [remote, path] = locate(server.uri("bucket/run"), quick());
    auto config = quick();
    config.progress = [](const TransferProgress&) {
        throw rtrain::ConfigError("RT-C1", "from progress");
    };
    CHECK(caught([&] { upload_files(remote, local.path(), files.names, path, config); }).code ==
          "RT-C1");
}

TEST_CASE("S3.all_succeeds_though_a_third_of_the_requests_fail") {
    const char* const given = std::getenv("RTRAIN_TEST_ROUNDS");
    const int rounds = given != nullptr ? std::atoi(given) : 3;
    for (const std::string fault :
         {R"("error_rate": 0.3, "error_status": 503)", R"("error_rate": 0.3, "error_status": 500)",
          R"("error_rate": 0.2, "reset_rate": 0.1)",
          R"("error_rate": 0.2, "reset_rate": 0.1, "stall_rate": 0.02)"}) {
        CAPTURE(fault);
        Server server("s3");
        const Directory local("faults");
        const Directory back("faults-back");
        const Files files(local.path());
        auto config = quick();
        config.attempts = 8;
        config.request_timeout_s = 1; // of a stalled part, curl notices after 27 s
        config.deadline_s = 300;
        const auto [remote, path] = locate(server.uri("bucket/run"), config);
        server.faults(fault);
        for (int round = 0; round < rounds; ++round) {
            const auto to = path + std::to_string(round);
            upload_files(remote, local.path(), files.names, to, config);
            download_files(remote, to, files.names, back.path(), config);
            CHECK(files.equal(local.path(), back.path()));
            with_retries(config, "removing", [&] { remote.remove(to); });
            CHECK_FALSE(with_retries(config, "looking", [&] { return remote.exists(to); }));
        }
        server.faults("");
        CHECK(server.injected() > 10 * rounds);
    }
}

TEST_CASE("S3.a_silent_server_ends_in_an_error_at_the_request_limit_and_the_deadline") {
    Server server("s3");
    const Directory local("silent");
    const Files files(local.path());
    auto config = quick();
    config.request_timeout_s = 1;
    config.attempts = 2;
    const auto [remote, path] = locate(server.uri("bucket/run"), config);
    remote.write(path + "/x", "x");
    server.faults(R"("stall_rate": 1)");
    // Two requests of 1 s each, were there no deadline.
    const auto read = caught([&] { static_cast<void>(remote.read(path + "/x")); });
    CHECK(read.transient);
    CHECK(contains(read.text, "s3://bucket/run/x"));
    CHECK(read.seconds < 20);
    require_no_secret(read);

    config.deadline_s = 1.5;
    config.attempts = 1000;
    const auto [patient, same] = locate(server.uri("bucket/run"), config);
    for (const bool up : {true, false}) {
        const auto error = caught([&] {
            up ? upload_files(patient, local.path(), files.names, same, config)
               : download_files(patient, same, {"x"}, local.path(), config);
        });
        CHECK(error.code == "RT-S12");
        CHECK(contains(error.text, "deadline_s = 1.5"));
        CHECK(contains(error.text, "s3://bucket/run"));
        CHECK(error.seconds > 1.4);
        CHECK(error.seconds < 30);
        require_no_secret(error);
    }
}

TEST_CASE("S3.a_slow_server_succeeds_within_the_deadline") {
    Server server("s3");
    const Directory local("slow");
    const Directory back("slow-back");
    const Files files(local.path());
    const auto [remote, path] = locate(server.uri("bucket/run"), quick());
    server.faults(R"("latency_s": 0.2)");
    upload_files(remote, local.path(), files.names, path, quick());
    download_files(remote, path, files.names, back.path(), quick());
    CHECK(files.equal(local.path(), back.path()));
}

TEST_CASE("S3.a_server_that_dies_leaves_an_error_and_nothing_half") {
    const Directory local("dies");
    const Directory back("dies-back");
    const Files files(local.path());
    for (int requests = 0; requests < 9; requests += 2) {
        CAPTURE(requests);
        Server server("s3");
        const auto [remote, path] = locate(server.uri("bucket/run"), quick());
        upload_files(remote, local.path(), files.names, path, quick());
        server.faults("\"die_after\": " + std::to_string(requests));
        fs::remove_all(back.path());
        fs::create_directories(back.path());
        const auto error =
            caught([&] { download_files(remote, path, files.names, back.path(), quick()); });
        CHECK(error.transient);
        CHECK(contains(error.text, "s3://bucket/run"));
        CHECK(error.seconds < 35);
        require_no_secret(error);
        for (const auto& entry : fs::recursive_directory_iterator(back.path())) {
            if (entry.is_regular_file()) {
                const auto name = fs::relative(entry.path(), back.path());
                CHECK((read_file(entry.path()) == read_file(local.path() / name)));
            }
        }
    }
    for (int requests = 0; requests < 9; requests += 2) {
        CAPTURE(requests);
        Server server("s3");
        const auto [remote, path] = locate(server.uri("bucket/run"), quick());
        server.faults("\"die_after\": " + std::to_string(requests));
        const auto error =
            caught([&] { upload_files(remote, local.path(), files.names, path, quick()); });
        CHECK(error.transient);
        CHECK(error.seconds < 35);
        require_no_secret(error);
    }
}

TEST_CASE("S3.a_part_that_fails_for_good_leaves_no_object_and_no_open_upload") {
    Server server("s3");
    const Directory local("abort");
    std::ofstream(local.path() / "big", std::ios::binary) << noise(40U << 20U, 1);
    auto config = quick();
    config.attempts = 1;
    const auto [remote, path] = locate(server.uri("bucket/run"), config);
    server.faults(R"("error_rate": 1.0, "error_status": 500, "only": "PUT")"); // parts, not POST
    const auto error = caught([&] { remote.upload(local.path() / "big", path + "/big"); });
    CHECK(error.transient);
    CHECK(contains(error.text, "s3://bucket/run/big"));
    server.faults("");
    CHECK_FALSE(remote.exists(path + "/big"));
    CHECK(server.open_uploads() == 0);
}

TEST_CASE("S3.a_big_directory_is_listed_and_removed") {
    Server server("s3");
    const auto [remote, path] = locate(server.uri("bucket/run"), quick());
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&, i, files = remote, to = path] {
            for (int k = 0; k < 300; ++k) {
                files.write(rtrain::detail::concat(to, "/many/", i, '/', k), "x");
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    CHECK(remote.list(path + "/many").size() == 4); // more than 1000 files: several answers
    CHECK(remote.list(path + "/many/3").size() == 300);
    remote.remove(path + "/many");
    CHECK_FALSE(remote.exists(path + "/many"));
    CHECK(remote.list(path).empty());
}

TEST_CASE("S3.wrong_credentials_and_buckets_are_said_without_a_key") {
    Server open("s3");
    const auto [remote, path] = locate(open.uri("nobucket/run"), quick());
    const auto bucket = caught([&] { remote.write(path + "/x", "x"); });
    CHECK(bucket.code == "RT-S10");
    CHECK_FALSE(bucket.transient);
    CHECK(contains(bucket.text, "s3://nobucket/run/x"));
    require_no_secret(bucket);

    Server strict("s3", "0"); // moto checks keys from the first request on
    const auto [refused, same] = locate(strict.uri("bucket/run"), quick());
    for (const auto& error : {caught([&] { refused.write(same + "/x", "x"); }),
                              caught([&] { static_cast<void>(refused.read(same + "/x")); }),
                              caught([&] { static_cast<void>(refused.list(same)); }),
                              caught([&] { static_cast<void>(refused.exists(same)); }),
                              caught([&] { refused.remove(same); })}) {
        CHECK(error.code == "RT-S10");
        CHECK(contains(error.text, "credentials"));
        CHECK(error.seconds < 30);
        require_no_secret(error);
    }

    CHECK(internal::without_keys("key " + canary_key + ", id " + canary_id) == "key ***, id ***");

    // Nor does a program print one, on standard error either.
    for (const auto& uri :
         {strict.uri("bucket/run"), "s3://" + canary_id + ":" + canary_key + "@bucket/run"}) {
        Child program({RTRAIN_TEST_NODE_USER, uri, "5"}, {}, true);
        program.end_input();
        const auto printed = program.receive_all();
        CHECK(contains(printed, "[RT-S"));
        CHECK_FALSE(contains(printed, canary_id));
        CHECK_FALSE(contains(printed, "canary"));
    }
}

TEST_CASE("S3.region_and_endpoint_come_from_the_environment") {
    Server server("s3");
    const std::string uri = server.uri("bucket/run");
    ::setenv("AWS_ENDPOINT_URL", ("http://" + uri.substr(uri.rfind('=') + 1) + "/").c_str(), 1);
    ::setenv("AWS_REGION", "us-east-1", 1);
    const auto [remote, path] = locate("s3://bucket/run", quick());
    ::unsetenv("AWS_ENDPOINT_URL");
    ::unsetenv("AWS_REGION");
    remote.write(path + "/x", "from the environment");
    CHECK(locate(uri, quick()).filesystem.read("bucket/run/x") == "from the environment");
}

TEST_CASE("Retry.passing_failures_are_tried_again_and_others_not") {
    auto config = quick();
    int calls = 0;
    CHECK(with_retries(config, "it", [&] {
              if (++calls < 3) {
                  throw rtrain::TransientStorageError("RT-S11", "passing");
              }
              return 7;
          }) == 7);
    CHECK(calls == 3);
    calls = 0;
    const auto last = caught([&] {
        with_retries(config, "doing it", [&] {
            ++calls;
            throw rtrain::TransientStorageError("RT-S11", "passing");
        });
    });
    CHECK(calls == config.attempts);
    CHECK(last.code == "RT-S11");
    CHECK(contains(last.text, "doing it failed 3 times"));
    CHECK(contains(last.text, "passing"));
    calls = 0;
    CHECK(caught([&] {
              with_retries(config, "it", [&] {
                  ++calls;
                  throw rtrain::StorageError("RT-S10", "lasting");
              });
          }).code == "RT-S10");
    CHECK(calls == 1);
    config.attempts = 1000;
    config.deadline_s = 0.3;
    CHECK(caught([&] {
              with_retries(config, "it",
                           [&] { throw rtrain::TransientStorageError("RT-S11", "passing"); });
          }).code == "RT-S12");
}

TEST_CASE("Retry.pauses_double_and_vary") {
    TransferConfig config;
    config.first_backoff_s = 1;
    config.max_backoff_s = 5;
    std::vector<double> first;
    for (int i = 0; i < 100; ++i) {
        first.push_back(pause_s(config, 1));
        CHECK(pause_s(config, 3) >= 2);
        CHECK(pause_s(config, 3) <= 4);
        CHECK(pause_s(config, 60) <= 5);
    }
    const auto [least, most] = std::ranges::minmax(first);
    CHECK(least >= 0.5);
    CHECK(most <= 1);
    CHECK(most - least > 0.1);
}

TEST_CASE("Transfer.a_truncated_arrival_is_found") {
    struct Lossy : Memory {
        void upload(const fs::path& local, const std::string& path) {
            write(path, read_file(local).substr(1));
        }
        void download(const std::string& path, const fs::path& local) {
            replace_file(local, read(path).substr(1));
        }
    };
    const Directory local("lossy");
    std::ofstream(local.path() / "x") << "12345";
    Lossy files;
    CHECK(caught([&] { upload_files(files, local.path(), {"x"}, "run", quick()); }).code ==
          "RT-S13");
    files.write("run/x", "12345");
    const auto error = caught([&] { download_files(files, "run", {"x"}, local.path(), quick()); });
    CHECK(error.code == "RT-S11");
    CHECK(contains(error.text, "4 bytes"));
}
