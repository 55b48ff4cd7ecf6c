// SPDX-License-Identifier: Apache-2.0
// Mistakes, and things that cannot be had, which no other test comes by: each ends in its code.
#include "support/training.hpp"

#include <rtrain/checkpoint/policy/host_copy.hpp>
#include <rtrain/checkpoint/store/staging.hpp>
#include <rtrain/data/torch_data.hpp>
#include <rtrain/model/parameters/gradient_errors.hpp>
#include <rtrain/model/sharded.hpp>

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

using namespace rtrain;
using test::code_of;

namespace {

using Local = Trainer<backend::Local>;

/// Rank 0 of 2, as far as a program can be that is alone: what the concept asks for, and no more.
struct HalfOfTwo {
    [[nodiscard]] int rank() const { return 0; }
    [[nodiscard]] int size() const { return 2; }
    void all_reduce(at::Tensor& /*tensor*/, ReduceOp /*op*/) {}
    void broadcast(at::Tensor& /*tensor*/, int /*root*/) {}
};

/// A data set that does not know how many rows it has.
class Endless : public torch::data::datasets::Dataset<Endless> {
public:
    torch::data::Example<> get(std::size_t index) override {
        return {torch::full({1}, static_cast<double>(index)), torch::zeros({1})};
    }
    [[nodiscard]] std::optional<std::size_t> size() const override { return std::nullopt; }
};

/// An optimizer that is none of torch's.
class Own : public torch::optim::Optimizer {
public:
    using Optimizer::Optimizer;
    torch::Tensor step(LossClosure /*closure*/) override { return {}; }
};

} // namespace

TEST_CASE("Refusals.some_of_many_unused_parameters_are_named") {
    const auto message = [](std::size_t unused) {
        const std::size_t size = 200;
        std::vector<NamedParameter> parameters;
        std::vector<bool> seen(size, true);
        for (std::size_t i = 0; i < size; ++i) {
            parameters.push_back({"p" + std::to_string(i), {}});
            seen[i] = i >= unused;
        }
        return test::message_of([&] {
            rtrain::detail::throw_unused(parameters, std::vector<bool>(size, true), seen, 1);
        });
    };
    CHECK(test::contains(message(2), "no gradient for \"p0\", \"p1\" on rank 1;"));
    const std::string many = message(120);
    CHECK(test::contains(many, "\"p4\" and 115 other of 200 parameters on rank 1"));
    CHECK(!test::contains(many, "p5"));
}

TEST_CASE("Refusals.a_negative_limit_is_an_error") {
    const auto rows = data::from_tensors({{"x", torch::arange(4)}});
    CHECK(code_of([&] { (void)rows.limit(-1); }) == "RT-D121");
    CHECK(rows.limit(0).size() == 0);
    CHECK(rows.limit(9).size() == 4);
}

TEST_CASE("Refusals.of_options") {
    const auto make = [](RunConfig run) {
        return code_of([&] { Local trainer({.run = std::move(run)}); });
    };
    const storage::AnyFilesystem own{storage::Local{}};
    CHECK(make({.storage_path = "s3://bucket/runs", .storage_filesystem = own}) == "RT-C13");
    CHECK(make({.storage_path = "runs", .storage_filesystem = own}).empty());
    CHECK(make({.profile = {.steps = {-1, 3}}}) == "RT-C38");
    CHECK(make({.profile = {.steps = {4, 3}}}) == "RT-C38");
    CHECK(make({.profile = {.steps = {3, 4}}}).empty());
}

TEST_CASE("Refusals.of_data_without_a_size") {
    CHECK(code_of([] { (void)data::from_dataset(Endless{}); }) == "RT-D10");
    const auto drawn = [](const data::Dataset& dataset) {
        return dataset.map_batches([](data::Batch batch, data::Random&) { return batch; }, 1);
    };
    const auto rows = data::from_tensors({{"x", torch::arange(4)}});
    const auto even =
        rows.filter([](const data::Batch& row) { return row["x"].item().toLong() % 2 == 0; });
    CHECK(code_of([&] { (void)drawn(even).take(1); }) == "RT-D90");
    CHECK(drawn(even.counted()).take(4).size() == 2);
}

TEST_CASE("Refusals.of_states") {
    test::Net net;
    Own optimizer(net->parameters(), std::make_unique<torch::optim::SGDOptions>(0.1));
    checkpoint::Snapshot snapshot;
    const auto state = State{}.add("optimizer", static_cast<torch::optim::Optimizer&>(optimizer));
    CHECK(code_of([&] { state.save(snapshot); }) == "RT-K7");

    checkpoint::HostCopy copy; // of more than any machine can address
    checkpoint::Snapshot large;
    large.tensors["large"] = torch::zeros({1}).expand({std::int64_t{1} << 50});
    CHECK(code_of([&] { (void)copy(std::move(large)); }) == "RT-K12");
}

TEST_CASE("Refusals.of_a_checkpoint_that_lacks_a_rank") {
    const test::Directory directory("lacks");
    const checkpoint::Staging staging({storage::Local{}, directory.path().string()}, "attempt", {},
                                      {});
    staging.stage("checkpoint_000000", 0);
    staging.hand_in_failure("checkpoint_000000", 1, std::runtime_error("no space"));
    const auto collect = [&] {
        (void)staging.collect("checkpoint_000000", 2, {}, std::stop_token{});
    };
    CHECK(code_of(collect) == "RT-K13");
    CHECK(test::contains(test::message_of(collect), "rank 1 could not write its part"));
}

TEST_CASE("Refusals.of_a_file_name_that_not_every_file_system_has") {
    const test::Directory directory("names");
    const auto mine = directory.path() / "mine";
    std::filesystem::create_directories(mine);
    test::write(mine / "back\\slash", "x");
    Local trainer({.run = {.name = "r", .storage_path = directory.path() / "runs"}});
    CHECK(test::contains(test::message_of([&] {
                             trainer.fit([&](auto& worker) {
                                 worker.report({}, Checkpoint::from_directory(mine));
                             });
                         }),
                         "RT-K14"));
}

TEST_CASE("Refusals.of_what_a_checkpoint_would_lack") {
    const test::Directory directory("lacked");
    const auto runs = directory.path() / "runs";
    std::filesystem::create_directories(directory.path() / "other");
    test::write(directory.path() / "other/file", "x");
    const auto accepted = [&](auto&& fill) { // of a report that copies, and of one that does not
        std::string all;
        for (const auto& mine : {directory.path() / "mine", runs / "r/mine"}) {
            std::filesystem::remove_all(directory.path() / "mine");
            std::filesystem::remove_all(runs / "r/mine"); // which would be a damaged checkpoint
            const bool copies = mine.parent_path() == directory.path();
            Local trainer({.run = {.name = "r", .storage_path = runs, .resume = Resume::always}});
            const auto message = test::message_of([&] {
                trainer.fit([&](auto& worker) {
                    std::filesystem::create_directories(mine);
                    fill(mine);
                    worker.report(
                        {}, Checkpoint::from_directory(mine),
                        {.checkpoint_upload_mode = copies ? CheckpointUploadMode::sync
                                                          : CheckpointUploadMode::no_upload});
                });
            });
            CHECK((message.empty() || test::contains(message, "RT-K14")));
            all += message.empty() ? "yes " : "no ";
        }
        return all;
    };
    const auto newest = [&] { return Result::from_path(runs / "r").checkpoint.value(); };
    CHECK(accepted([](const auto& mine) { test::write(mine / "manifest.json", "{}"); }) ==
          "no no ");
    CHECK(accepted([&](const auto& mine) {
              std::filesystem::create_directory_symlink(directory.path() / "other", mine / "link");
          }) == "no no ");
    CHECK(accepted([](const auto& mine) {
              std::filesystem::create_symlink("nowhere", mine / "link");
          }) == "no no ");
    CHECK(accepted([&](const auto& mine) {
              std::filesystem::create_symlink(directory.path() / "other/file", mine / "link");
          }) == "yes no ");
    CHECK(test::read(newest().as_directory() / "link") == "x");
    CHECK(accepted([&](const auto& mine) { // one of rtrain's, with more files
              newest().to_directory(mine);
              std::filesystem::create_directory(mine / "deep");
              test::write(mine / "deep/manifest.json", "{}");
          }) == "yes yes ");
    CHECK(test::read(newest().as_directory() / "deep/manifest.json") == "{}");
}

TEST_CASE("Refusals.of_a_sharded_model_on_ranks_that_share_no_memory") {
    const auto ranks =
        std::make_shared<rtrain::detail::TheBackend<HalfOfTwo>>(std::make_shared<HalfOfTwo>());
    const auto prepare = [&] {
        (void)EngineFor<ShardedOptions>::prepare<torch::nn::LinearImpl, HalfOfTwo>(
            ranks, std::make_shared<torch::nn::LinearImpl>(2, 2), {});
    };
    CHECK(code_of(prepare) == "RT-C41");
}
