// SPDX-License-Identifier: Apache-2.0
// Checkpoints that several ranks write together.
#include "support/training.hpp"

#include <rtrain/checkpoint/layout/verify.hpp>

#include <doctest/doctest.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

using namespace rtrain;
using test::code_of;

namespace {

/// Of a tensor of 37 rows, the first of this rank and that of the next.
std::pair<std::int64_t, std::int64_t> my_rows(int rank, int size) {
    return {37 * rank / size, 37 * (rank + 1) / size};
}

/// An embedding table of which each rank has some rows.
struct Table {
    int rank = 0;
    int size = 1;
    at::Tensor rows{};

    void save(StateWriter& out) const { out.rows("weight", rows, my_rows(rank, size).first, 37); }
    void load(const StateReader& in) {
        const auto [begin, end] = my_rows(rank, size);
        rows = in.rows("weight", begin, end);
    }
};

std::vector<std::string> files_in(const std::filesystem::path& directory) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

/// One step of training on the state of `net` and `optimizer`; the same on all ranks.
void step(test::Net& net, torch::optim::Adam& optimizer) {
    optimizer.zero_grad();
    net(torch::linspace(-1, 1, 4 * 784).view({4, 784})).square().mean().backward();
    optimizer.step();
}

/// Why this process cannot mount something that others do not see, as root of a container without
/// CAP_SYS_ADMIN; empty when it can. Tried in a thread, which takes its mounts with it.
std::string why_nothing_can_be_mounted(const std::filesystem::path& place) {
    std::string why;
    std::jthread([&] {
        const auto attempt = [&](const char* what, int result) {
            if (why.empty() && result != 0) {
                why = std::string(what) + ": " + std::strerror(errno);
            }
        };
        attempt("unshare", ::unshare(CLONE_NEWNS));
        if (why.empty()) { // else the mount would be everybody's
            attempt("mount", ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr));
        }
        if (why.empty()) {
            attempt("mount", ::mount("none", place.c_str(), "tmpfs", 0, "size=1m"));
        }
    }).join();
    return why;
}

} // namespace

TEST_CASE_TEMPLATE("Checkpoint.what_one_policy_writes_any_other_reads", Policy, checkpoint::Sync,
                   checkpoint::Async, checkpoint::Sharded, checkpoint::AsyncSharded) {
    const test::Directory directory("policies");
    const RunConfig run{.name = "r", .storage_path = directory.path(), .resume = Resume::always};
    std::vector<at::Tensor> expected;
    const Result result =
        Trainer<backend::Mpi, data::Sharded, Policy>({.run = run}).fit([&](auto& worker) {
            torch::manual_seed(1);
            test::Net net;
            torch::optim::Adam optimizer(net->parameters());
            auto state = State{}.add("net", net).add("optimizer", optimizer);
            for (int i = 0; i < 3; ++i) {
                step(net, optimizer);
                worker.report({{"i", i}}, state);
            }
            step(net, optimizer);
            for (const auto& parameter : net->parameters()) {
                expected.push_back(parameter.detach().clone());
            }
        });
    REQUIRE(result.best_checkpoints.size() == 3);
    if (std::derived_from<Policy, checkpoint::Sharded>) {
        const auto files = files_in(result.checkpoint->path);
        const auto ranks = static_cast<std::size_t>(launch::ranks().value_or(1));
        REQUIRE(files.size() == ranks + 2);
        CHECK(files[0] == "manifest.json");
        CHECK(files[ranks] ==
              rtrain::detail::concat("shard-0000", ranks - 1, "-of-0000", ranks, ".safetensors"));
    }
    const auto goes_on = [&](auto policy) {
        Trainer<backend::Mpi, data::Sharded, decltype(policy)>({.run = run}).fit([&](auto& worker) {
            test::Net net;
            torch::optim::Adam optimizer(net->parameters());
            REQUIRE(worker.restore(State{}.add("net", net).add("optimizer", optimizer)));
            step(net, optimizer);
            for (std::size_t i = 0; i < expected.size(); ++i) {
                CHECK(net->parameters()[i].equal(expected[i]));
            }
        });
    };
    goes_on(checkpoint::Sync{});
    goes_on(checkpoint::AsyncSharded{});
}

TEST_CASE_TEMPLATE("Checkpoint.what_ranks_have_other_values_of_is_rank_0s", Policy,
                   checkpoint::Sync, checkpoint::Sharded, checkpoint::AsyncSharded) {
    const test::Directory directory("rank_0s");
    const RunConfig run{.name = "r", .storage_path = directory.path()};
    at::Tensor expected;
    for (const bool again : {false, true}) {
        Trainer<backend::Mpi, data::Sharded, Policy>({.run = run}).fit([&](auto& worker) {
            torch::nn::BatchNorm1d norm(64);
            const auto rank = static_cast<std::uint64_t>(worker.rank());
            auto model = worker.prepare(norm);
            auto state = State{}.add("norm", model);
            if (again) {
                REQUIRE(worker.restore(state));
                CHECK(norm->running_mean.equal(expected));
                return;
            }
            torch::manual_seed(rank);
            (void)model(torch::randn({8, 64})); // leaves other means on each rank
            expected = norm->running_mean.clone();
            worker.broadcast(expected);
            worker.report({}, state);
        });
    }
}

TEST_CASE_TEMPLATE("Checkpoint.each_rank_gets_its_own_back", Policy, checkpoint::Sync,
                   checkpoint::Async, checkpoint::Sharded, checkpoint::AsyncSharded) {
    const test::Directory directory("per_rank");
    const RunConfig run{.name = "r", .storage_path = directory.path()};
    at::Tensor drawn;
    for (const bool again : {false, true}) {
        Trainer<backend::Mpi, data::Sharded, Policy>({.run = run}).fit([&](auto& worker) {
            const int rank = worker.rank();
            auto generator = at::make_generator<at::CPUGeneratorImpl>(again ? 99 : 7 + rank);
            auto replay = again ? at::Tensor() : torch::full({rank + 2, 3}, rank);
            long rows = again ? 0 : 100 + rank;
            auto policy = torch::nn::Linear(4, 4); // each rank's own
            const auto mine = torch::full({4, 4}, rank);
            if (!again) {
                const torch::NoGradGuard no_grad;
                policy->weight.copy_(mine);
            }
            int step = again ? 0 : 3;
            auto state = State{}
                             .add("step", step)
                             .add("generator", generator)
                             .add_per_rank("replay", replay)
                             .add_per_rank("rows", rows)
                             .add_per_rank("policy", policy);
            if (!again) {
                worker.report({}, state);
                drawn = torch::rand({4}, generator);
                return;
            }
            REQUIRE(worker.restore(state));
            CHECK(step == 3);
            CHECK(rows == 100 + rank);
            CHECK(replay.equal(torch::full({rank + 2, 3}, rank)));
            CHECK(policy->weight.equal(mine.to(torch::kFloat)));
            CHECK(torch::rand({4}, generator).equal(drawn));
        });
    }
}

TEST_CASE_TEMPLATE("Checkpoint.what_differs_between_ranks_is_an_error", Policy, checkpoint::Sync,
                   checkpoint::AsyncSharded) {
    const test::Directory directory("differs");
    int runs = 0;
    int size = 1;
    const auto refused = [&](const auto& report) { // a refused report ends its run
        const std::string name = "r" + std::to_string(runs++);
        return test::message_of([&] {
            Trainer<backend::Mpi, data::Sharded, Policy>(
                {.run = {.name = name, .storage_path = directory.path()}})
                .fit([&](auto& worker) {
                    size = worker.size();
                    report(worker, worker.rank());
                });
        });
    };
    const auto check = [&](const std::string& name, const std::string& values, const auto& report) {
        const auto message = refused(report);
        CAPTURE(message);
        CHECK(test::contains(message, "RT-K29") == (size > 1));
        CHECK(test::contains(message, "\"" + name + "\"") == (size > 1));
        CHECK(test::contains(message, values) == (size > 1));
    };
    check("counter/value", "5 on rank 0, but 6 on rank 1", [](auto& worker, int rank) {
        long counter = 5 + rank;
        worker.report({}, State{}.add("counter", counter));
    });
    check("best/value", "0 on rank 0, but 1 on rank 1", [](auto& worker, int rank) {
        double best = rank;
        worker.report({}, State{}.add("best", best));
    });
    check("replay/tensor", "with different values on rank 1", [](auto& worker, int rank) {
        auto replay = torch::zeros({1000, 10});
        replay[rank + 500].fill_(1);
        worker.report({}, State{}.add("replay", replay));
    });
    check("grows/tensor", "[2] on rank 1", [](auto& worker, int rank) {
        auto grows = torch::zeros({rank + 1});
        worker.report({}, State{}.add("grows", grows));
    });
    check("alone/bias", "with different values on rank 1", [](auto& worker, int rank) {
        auto alone = torch::nn::Linear(100, 100);
        {
            const torch::NoGradGuard no_grad;
            for (auto& parameter : alone->parameters()) {
                parameter.fill_(rank);
            }
        }
        worker.report({}, State{}.add("alone", alone));
    });
    check("optimizer/0/options/lr", "0.1 on rank 0, but 0.2 on rank 1", [](auto& worker, int rank) {
        auto shared = torch::nn::Linear(4, 4);
        auto model = worker.prepare(shared);
        torch::optim::SGD optimizer(shared->parameters(), rank == 0 ? 0.1 : 0.2);
        worker.report({}, State{}.add("model", model).add("optimizer", optimizer));
    });
    check("more/value", "missing on rank 0, but 3 on rank 1", [](auto& worker, int rank) {
        int same = 3;
        auto more = State{}.add("same", same);
        if (rank == 1) {
            more.add("more", same);
        }
        worker.report({}, more);
    });
    CHECK(refused([](auto& worker, int rank) {
              int same = 3;
              long counter = 5 + rank;
              worker.report({}, State{}.add("same", same).add_per_rank("counter", counter));
          }).empty());
}

TEST_CASE("Epochs.what_one_rank_cannot_save_fails_on_all_before_the_first") {
    const test::Directory directory("unsaved");
    int epochs = 0;
    const auto message = test::message_of([&] {
        Trainer<backend::Mpi>({.run = {.name = "r", .storage_path = directory.path()}})
            .fit([&](auto& worker) {
                auto own =
                    torch::zeros({2}, worker.rank() == worker.size() - 1 ? torch::kComplexDouble
                                                                         : torch::kDouble);
                for (const int epoch : worker.epochs(2, State{}.add_per_rank("own", own))) {
                    epochs += 1 + epoch;
                }
            });
    });
    CHECK(test::contains(message, "RT-K6"));
    CHECK(epochs == 0);
}

TEST_CASE_TEMPLATE("Checkpoint.ranks_agree_when_one_is_due", Policy, checkpoint::Sync,
                   checkpoint::AsyncSharded) {
    const test::Directory directory("interval");
    const TrainerOptions options{
        .run = {.name = "r",
                .storage_path = directory.path(),
                .checkpoint = {.mean_time_between_failures_s = 0.5}, // first due after 0.32 s
                .resume = Resume::always}};
    using Due = Trainer<backend::Mpi, data::Sharded, Policy>;
    const Result first = Due(options).fit([&](auto& worker) {
        int step = 0;
        auto state = State{}.add("step", step);
        for (step = 1; step <= 100; ++step) {
            // Ranks come to each report one after the other, so their clocks differ.
            std::this_thread::sleep_for(std::chrono::milliseconds(4 * worker.rank() + 4));
            worker.report({{"step", step}}, state);
        }
    });
    REQUIRE(first.metrics_history.size() == 100);
    REQUIRE(!first.best_checkpoints.empty());
    CHECK(first.best_checkpoints.size() < 100); // not each report
    const auto saved = first.best_checkpoints.back().second.at("step").as_int64();
    Due(options).fit([&](auto& worker) {
        int step = 0;
        auto state = State{}.add("step", step);
        REQUIRE(worker.restore(state));
        CHECK(step == saved);
    });
}

TEST_CASE_TEMPLATE("Checkpoint.rows_are_saved_by_those_who_have_them", Policy, checkpoint::Sync,
                   checkpoint::Sharded) {
    const test::Directory directory("table");
    Trainer<backend::Mpi, data::Sharded, Policy> trainer(
        {.run = {.name = "r", .storage_path = directory.path()}});
    const auto whole = torch::arange(37 * 5, torch::kFloat).view({37, 5});
    trainer.fit([&](auto& worker) {
        const auto [begin, end] = my_rows(worker.rank(), worker.size());
        Table table{worker.rank(), worker.size(), whole.slice(0, begin, end).clone()};
        auto state = State{}.add("table", table);
        worker.report({}, state);
        table.rows = at::Tensor();
        worker.restore(state);
        CHECK(table.rows.equal(whole.slice(0, begin, end)));
    });
}

TEST_CASE("Checkpoint.a_part_that_cannot_be_written_fails_on_all" * doctest::timeout(60)) {
    const test::Directory directory("failing");
    using Async = checkpoint::AsyncSharded;
    for (const bool metrics_only : {false, true}) {
        const std::string name = metrics_only ? "metrics" : "state";
        Trainer<backend::Mpi, data::Sharded, Async> trainer(
            {.run = {.name = name, .storage_path = directory.path()}});
        const auto message = test::message_of([&] {
            (void)trainer.fit([&](auto& worker) {
                auto weights = torch::ones({1000});
                auto state = State{}.add("weights", weights);
                worker.report({}, state);
                // The last rank has what no file can hold.
                auto bad = worker.rank() == worker.size() - 1
                               ? torch::ones({100000}, torch::kComplexDouble)
                               : torch::ones({100000}, torch::kDouble);
                worker.report({}, State{}.add_per_rank("weights", bad));
                for (int i = 0; i < 1000; ++i) { // the next, or a later one when it is not done
                    if (metrics_only) {
                        worker.report({});
                        std::this_thread::sleep_for(std::chrono::milliseconds(10));
                    } else {
                        worker.report({}, state);
                    }
                }
            });
        });
        CHECK(test::contains(message, "RT-K"));
        const Result result = Result::from_path(directory.path() / name);
        REQUIRE(result.checkpoint);
        checkpoint::verify(result.checkpoint->path);
    }
}

TEST_CASE("Checkpoint.a_directory_in_the_background") {
    const test::Directory directory("background");
    Trainer<backend::Mpi> trainer(
        {.run = {.name = "r", .storage_path = directory.path() / "runs"}});
    const Result result = trainer.fit([&](auto& worker) {
        const auto rank = std::to_string(worker.rank());
        const auto mine = directory.path() / ("rank" + rank);
        std::filesystem::create_directories(mine);
        test::write(mine / ("part" + rank), rank);
        worker.report({}, Checkpoint::from_directory(mine),
                      {.checkpoint_upload_mode = CheckpointUploadMode::async});
        worker.report({});
    });
    REQUIRE(result.checkpoint);
    for (int rank = 0; rank < launch::ranks().value_or(1); ++rank) {
        CHECK(test::read(result.checkpoint->path / ("part" + std::to_string(rank))) ==
              std::to_string(rank));
        CHECK(!std::filesystem::exists(directory.path() / ("rank" + std::to_string(rank))));
    }
}

TEST_CASE("Storage.a_path_that_nodes_do_not_share_is_found_before_training") {
    if (launch::ranks().value_or(1) == 1) {
        MESSAGE("skipped: it takes two ranks");
        return;
    }
    const test::Directory directory("unshared");
    const bool apart = launch::env_int("OMPI_COMM_WORLD_RANK") == 1;
    const auto results = directory.path() / "results";
    std::filesystem::create_directories(results);
    std::string obstacle = apart ? why_nothing_can_be_mounted(results) : "";
    obstacle.resize(100); // the same length on all ranks
    MPI_Bcast(obstacle.data(), 100, MPI_CHAR, 1, MPI_COMM_WORLD);
    if (obstacle[0] != '\0') {
        MESSAGE("skipped: rank 1 cannot have a disk of its own: " << std::string(obstacle.c_str()));
        return;
    }
    const int here = ::open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (apart) { // as on another node: the same path, another disk
        REQUIRE(::unshare(CLONE_NEWNS) == 0);
        REQUIRE(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
        REQUIRE(::mount("none", results.c_str(), "tmpfs", 0, "size=1m") == 0);
        // An earlier run on this node alone has left its mark.
        std::filesystem::create_directories(results / "r");
        test::write(results / "r/.validate_storage_marker", "another");
    }
    bool trained = false;
    const auto message = test::message_of([&] {
        Trainer<backend::Mpi>({.run = {.name = "r", .storage_path = results}}).fit([&](auto&) {
            trained = true;
        });
    });
    CHECK(test::contains(message, "RT-S2"));
    CHECK(test::contains(message, "rank 1"));
    CHECK(test::contains(message, "shared by all nodes"));
    CHECK(!trained);
    if (apart) {
        CHECK(::umount(results.c_str()) == 0);
        CHECK(::setns(here, CLONE_NEWNS) == 0);
    }
    ::close(here);
}
