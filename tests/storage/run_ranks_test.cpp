// SPDX-License-Identifier: Apache-2.0
// Whole runs whose storage is a service, on ranks; rank 0 plays the service.
#include "services.hpp"

#include <rtrain/checkpoint/layout/verify.hpp>
#include <rtrain/comm/world/mpi.hpp>
#include <rtrain/track/page/run_report.hpp>
#include <rtrain/trainer.hpp>

#include <doctest/doctest.h>

#include <torch/torch.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

using namespace rtrain;

namespace {

int rank_of_world() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

/// A server on rank 0 that all ranks know.
class SharedServer {
public:
    SharedServer() {
        ::setenv("AWS_ACCESS_KEY_ID", test::canary_id.c_str(), 1);
        ::setenv("AWS_SECRET_ACCESS_KEY", test::canary_key.c_str(), 1);
        ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
        std::array<char, 256> text{};
        if (rank_of_world() == 0) {
            server_ = std::make_unique<test::Server>("s3");
            std::snprintf(text.data(), text.size(), "%s", server_->uri("bucket/runs").c_str());
        }
        MPI_Bcast(text.data(), text.size(), MPI_CHAR, 0, MPI_COMM_WORLD);
        uri_ = text.data();
    }
    ~SharedServer() { MPI_Barrier(MPI_COMM_WORLD); }
    SharedServer(const SharedServer&) = delete;
    SharedServer& operator=(const SharedServer&) = delete;

    [[nodiscard]] const std::string& uri() const { return uri_; }
    /// Rank 0's.
    void faults(const std::string& json) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (server_) {
            server_->faults(json);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    int count(const std::string& method, const std::string& prefix) {
        int requests = server_ ? server_->count(method, prefix) : 0;
        MPI_Bcast(&requests, 1, MPI_INT, 0, MPI_COMM_WORLD);
        return requests;
    }

private:
    std::unique_ptr<test::Server> server_;
    std::string uri_;
};

RunConfig on(const SharedServer& server, const std::string& name) {
    return {.name = name,
            .storage_path = server.uri(),
            .checkpoint = {.num_to_keep = 2},
            .transfer = test::quick()};
}

/// Ten steps a start, each of which changes every element; a checkpoint each.
template <class Policy>
Result train(const RunConfig& run, int steps) {
    return Trainer<backend::Mpi, data::Sharded, Policy>({.run = run}).fit([&](auto& worker) {
        auto weights = torch::arange(300'000, torch::kDouble);
        int step = 0;
        auto state = State{}.add("weights", weights).add("step", step);
        if (worker.restore(state)) {
            CHECK(weights.equal(torch::arange(300'000, torch::kDouble) + step));
        }
        while (step < steps) {
            ++step;
            weights += 1;
            worker.report({{"step", step}}, state);
        }
    });
}

using Told = std::vector<std::string>;

/// On rank 0; the checkpoint that it is told of can be read.
struct Recorder {
    Told* told;

    void after_checkpoint(const track::RunInfo& /*run*/, const Checkpoint& checkpoint) const {
        CHECK(checkpoint::verify(checkpoint.as_directory()).index >= 0);
        told->push_back("saved " + checkpoint.path.filename().string());
    }
    void on_end(const Result& result) const { told->push_back("ends: " + result.stop_reason); }
};

std::vector<std::string> names(const Result& result) {
    std::vector<std::string> all;
    for (const auto& [checkpoint, metrics] : result.best_checkpoints) {
        all.push_back(checkpoint.path.filename().string());
    }
    return all;
}

} // namespace

TEST_CASE_TEMPLATE("Run.on_s3_from_start_to_restart", Policy, checkpoint::Sync, checkpoint::Async,
                   checkpoint::Sharded, checkpoint::AsyncSharded) {
    SharedServer server;
    const auto run = on(server, "r");
    const Result first = train<Policy>(run, 4);
    CHECK(first.path == "bucket/runs/r");
    CHECK(names(first) == std::vector<std::string>{"checkpoint_000002", "checkpoint_000003"});
    const Result second = train<Policy>(run, 6);
    CHECK(names(second) == std::vector<std::string>{"checkpoint_000004", "checkpoint_000005"});
    std::vector<std::int64_t> iterations;
    for (const auto& report : second.metrics_history) {
        iterations.push_back(report.at("training_iteration").as_int64());
    }
    CHECK(iterations == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6});

    // From anywhere, by the URI; what is not kept is gone.
    const auto root = server.uri().substr(0, server.uri().find('?'));
    const auto query = server.uri().substr(root.size());
    const Result later = Result::from_path(root + "/r" + query);
    CHECK(later.metrics.at("step") == 6);
    REQUIRE(later.checkpoint);
    const auto directory = later.checkpoint->as_directory();
    CHECK(checkpoint::verify(directory).index == 5);
    const auto at = later.checkpoint->location();
    std::vector<std::string> there;
    for (const auto& entry : at.filesystem.list("bucket/runs/r")) {
        there.push_back(entry.name);
    }
    CHECK(there == std::vector<std::string>{".validate_storage_marker", "checkpoint_000004",
                                            "checkpoint_000005", "latest", "params.json",
                                            "progress.csv", "report.html", "result.json",
                                            "run.json", "trainer.json"});
    if (rank_of_world() == 0) { // others may return from fit() before it has written the page
        const std::string page = "bucket/runs/r/report.html";
        CHECK(at.filesystem.read(page).find("<dd>finished</dd>") != std::string::npos);
        CHECK(track::write_report(later).find(page) != std::string::npos);
        CHECK(at.filesystem.read(page).find("<dd>finished</dd>") == std::string::npos);
    }
    for (const auto& entry : at.filesystem.list("bucket/runs/r/checkpoint_000005")) {
        CHECK(!entry.name.starts_with(".rtrain-"));
    }
}

/// On Google Cloud Storage, and where directories are as HDFS has them.
TEST_CASE("Run.on_other_services_from_start_to_restart") {
    if (launch::ranks().value_or(1) != 1) {
        return; // the emulators are this process's
    }
    const test::Server gcs("gcs");
    const test::Directory hdfs("run-hdfs");
    RunConfig on_gcs{
        .name = "r", .storage_path = gcs.uri("bucket/runs"), .transfer = test::quick()};
    RunConfig on_hdfs{
        .name = "r",
        .storage_path = "runs",
        .storage_filesystem = storage::AnyFilesystem(
            storage::ArrowFilesystem(std::make_shared<test::Directories>(hdfs.path()), "hdfs"),
            "hdfs")};
    for (RunConfig& run : {std::ref(on_gcs), std::ref(on_hdfs)}) {
        CAPTURE(run.storage_path);
        run.checkpoint = {.num_to_keep = 2};
        const Result first = train<checkpoint::Sync>(run, 2);
        CHECK(names(first) == std::vector<std::string>{"checkpoint_000000", "checkpoint_000001"});
        const auto at = first.checkpoint->location();
        const std::string cut_off = at.path.substr(0, at.path.rfind('/')) + "/checkpoint_000002";
        at.filesystem.write(cut_off + "/.rtrain-uploading", "x"); // and no manifest
        at.filesystem.write(cut_off + "/state.json", "{}");
        const Result second = train<checkpoint::AsyncSharded>(run, 4);
        CHECK(second.metrics.at("step") == 4);
        CHECK(names(second) == std::vector<std::string>{"checkpoint_000003", "checkpoint_000004"});
        CHECK(!at.filesystem.exists(cut_off));
        CHECK(checkpoint::verify(second.checkpoint->as_directory()).index == 4);
        CHECK(train<checkpoint::Sync>(run, 5).metrics.at("step") == 5);
    }
}

TEST_CASE("Run.on_s3_stops_and_stays_stopped") {
    SharedServer server;
    auto run = on(server, "stops");
    run.stop = stop::MaxIterations{2};
    for (const bool again : {false, true}) {
        CAPTURE(again);
        Told told;
        run.callbacks = {Recorder{&told}};
        int taken = 0;
        const Result result = Trainer<>({.run = run}).fit([&](auto& worker) {
            int epoch_behind = 0;
            auto state = State{}.add("epoch_behind", epoch_behind);
            for (const int epoch : worker.epochs(5, state)) {
                epoch_behind = epoch;
                ++taken;
                worker.report({{"epoch", epoch}}, state);
            }
        });
        CHECK(taken == (again ? 0 : 2));
        CHECK(result.metrics_history.size() == 2);
        CHECK(result.stop_reason == "MaxIterations: 2 reports");
        if (rank_of_world() == 0) {
            const Told end{"ends: MaxIterations: 2 reports"};
            CHECK(told == (again ? end
                                 : Told{"saved checkpoint_000000", "saved checkpoint_000001",
                                        end.front()}));
        }
    }
    const auto root = server.uri().substr(0, server.uri().find('?'));
    CHECK(Result::from_path(root + "/stops" + server.uri().substr(root.size())).stop_reason ==
          "MaxIterations: 2 reports");
}

TEST_CASE("Run.on_s3_downloads_once_per_node") {
    SharedServer server;
    const auto run = on(server, "once");
    train<checkpoint::Sync>(run, 1);
    const std::string file = "/bucket/runs/once/checkpoint_000000/state.safetensors";
    const int before = server.count("GET", file);
    train<checkpoint::Sync>(run, 1);
    CHECK(server.count("GET", file) == before + 1);
}

TEST_CASE("Run.on_s3_survives_a_failing_service") {
    SharedServer server;
    server.faults(R"("error_rate": 0.15, "error_status": 503, "reset_rate": 0.05)");
    auto run = on(server, "faults");
    run.transfer.attempts = 12;
    const int saves = launch::env_int("RTRAIN_TEST_SAVES").value_or(5);
    const Result result = train<checkpoint::AsyncSharded>(run, saves);
    REQUIRE(result.best_checkpoints.size() == 2);
    for (int i = 0; i < 2; ++i) {
        const auto& [checkpoint, metrics] = result.best_checkpoints[static_cast<std::size_t>(i)];
        CHECK(metrics.at("step") == saves - 1 + i);
        CHECK(checkpoint::verify(checkpoint.as_directory()).index == saves - 2 + i);
    }
    const Result again = train<checkpoint::AsyncSharded>(run, saves + 1);
    CHECK(again.metrics.at("step") == saves + 1);
}

TEST_CASE("Run.on_s3_goes_on_from_the_newest_sound_checkpoint") {
    SharedServer server;
    const auto run = on(server, "damaged");
    const Result first = train<checkpoint::Sync>(run, 2);
    const auto at = first.checkpoint->location();
    if (rank_of_world() == 0) {
        std::string text = at.filesystem.read(at.path + "/state.safetensors");
        text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 4);
        at.filesystem.write(at.path + "/state.safetensors", text);
        // An upload that was cut off: files, but no manifest.
        at.filesystem.write("bucket/runs/damaged/checkpoint_000002/.rtrain-uploading", "x");
        at.filesystem.write("bucket/runs/damaged/checkpoint_000002/state.json", "{}");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const Result result = train<checkpoint::Sync>(run, 3);
    CHECK(result.metrics.at("step") == 3);
    CHECK(names(result) ==
          std::vector<std::string>{"checkpoint_000001", // damaged: never deleted, never used
                                   "checkpoint_000003", "checkpoint_000004"});
}

TEST_CASE("Run.on_s3_ends_in_an_error_when_the_service_is_gone" * doctest::timeout(120)) {
    SharedServer server;
    auto run = on(server, "gone");
    const auto error = test::caught([&] {
        Trainer<backend::Mpi, data::Sharded, checkpoint::Async>({.run = run})
            .fit([&](auto& worker) {
                auto weights = torch::ones({1000});
                auto state = State{}.add("weights", weights);
                worker.report({}, state);
                worker.report({}, state);
                server.faults(R"("die_after": 0)");
                for (int i = 0; i < 100; ++i) {
                    worker.report({}, state);
                }
            });
    });
    CHECK(error.code == "RT-T1");
    CAPTURE(error.text);
    CHECK(test::contains(error.text, "RT-S"));
    CHECK(!test::contains(error.text, test::canary_key));
    CHECK(!test::contains(error.text, test::canary_id));
    CHECK(error.seconds < 60);
}

TEST_CASE("Run.files_in_memory_become_a_checkpoint") {
    SharedServer server;
    const test::Directory directory("in-memory");
    RunConfig run = on(server, "in-memory");
    const auto report = [&](const std::string& name, CheckpointUploadMode mode) {
        return Trainer<backend::Mpi>({.run = run}).fit([&](auto& worker) {
            std::map<std::string, std::string> files;
            if (worker.rank() == 0) {
                files.emplace(name, "weights");
            }
            worker.report_files({{"loss", 1}}, files,
                                {.checkpoint_upload_mode = mode, .metadata = {{"a", 1}}});
            worker.report({{"loss", 2}});
        });
    };
    std::vector<std::filesystem::path> storages{run.storage_path};
    if (launch::ranks().value_or(1) == 1) { // other ranks do not see the directory
        storages.push_back(directory.path());
    }
    for (const auto& storage : storages) {
        run.storage_path = storage;
        for (const auto mode : {CheckpointUploadMode::sync, CheckpointUploadMode::async}) {
            run.name = mode == CheckpointUploadMode::sync ? "waits" : "in-background";
            const Result result = report("deep/model", mode);
            CHECK(result.metric("loss") == 2);
            REQUIRE(result.checkpoint);
            CHECK(result.checkpoint->metadata().at("a") == 1);
            const auto copy = result.checkpoint->to_directory();
            CHECK(storage::read_file(copy / "deep/model") == "weights");
            run.name += "-refused";
            CHECK(test::message_of([&] { (void)report("../model", mode); }).find("RT-K14") !=
                  std::string::npos);
        }
    }
}

TEST_CASE("Run.in_a_file_system_of_ones_own") {
    if (test::Memory memory; launch::ranks().value_or(1) == 1) {
        const RunConfig run{.name = "r",
                            .storage_path = "team",
                            .storage_filesystem = storage::AnyFilesystem(memory, "memory")};
        const Result first = train<checkpoint::AsyncSharded>(run, 2);
        CHECK(first.path == "team/r");
        REQUIRE(first.checkpoint);
        CHECK(first.checkpoint->uri() == "memory://team/r/checkpoint_000001");
        CHECK(train<checkpoint::Sync>(run, 3).metrics.at("step") == 3);
        CHECK(Result::from_path("team/r", run.storage_filesystem).metrics.at("step") == 3);
        const Checkpoint other = Checkpoint::from_directory("team/r/checkpoint_000002", memory);
        other.update_metadata({{"a", 1}});
        CHECK(other.metadata().at("a") == 1);

        const test::Directory own("own-directory"); // with one below it
        std::filesystem::create_directory(own.path() / "deep");
        std::ofstream(own.path() / "deep/model") << "weights";
        auto its = run;
        its.name = "own";
        const Result reported = Trainer<>({.run = its}).fit([&](auto& worker) {
            worker.report({{"loss", 1}}, Checkpoint::from_directory(own.path()),
                          {.metadata = {{"a", 1}}});
        });
        REQUIRE(reported.checkpoint);
        CHECK(reported.checkpoint->metadata().at("a") == 1);
        std::string text;
        std::ifstream(reported.checkpoint->to_directory() / "deep/model") >> text;
        CHECK(text == "weights");
    }
}
