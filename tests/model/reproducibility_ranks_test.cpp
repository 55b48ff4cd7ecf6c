// SPDX-License-Identifier: Apache-2.0
// The same run twice, and on other ranks.
#include "support/training.hpp"

#include <rtrain/data/order/position.hpp>

#include <doctest/doctest.h>

#include <optional>

using namespace rtrain;

namespace {

struct Outcome {
    torch::Tensor parameters;
    torch::Tensor loader_rows; ///< that rank 0's torch::data loader gives first
};

/// Two epochs with everything that draws random numbers: initial values, dropout, shuffles. Without
/// a seed, torch draws on from where it is.
Outcome train(const test::Directory& directory, std::optional<std::uint64_t> seed) {
    static int number = 0;
    Outcome outcome;
    Trainer<> trainer(
        {.run = {.name = "run-" + std::to_string(number++), .storage_path = directory.path()},
         .datasets = {{"train", test::fashion_mnist(480)}}});
    trainer.fit([&](auto& worker) {
        if (seed) {
            worker.enable_reproducibility(*seed);
        }
        auto model = worker.prepare(test::Net(0.3, true));
        torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));
        auto batches = worker.dataset_shard("train").batches({.size = 12, .shuffle = true});
        for (int epoch = 0; epoch < 2; ++epoch) {
            for (auto& batch : batches) {
                optimizer.zero_grad();
                torch::cross_entropy_loss(model(batch["image"]), batch["label"]).backward();
                optimizer.step();
            }
        }
        outcome.parameters = test::flat(*model);
        auto loader = worker.prepare(torch::data::datasets::TensorDataset(torch::arange(100)), {});
        for (auto& examples : loader) {
            outcome.loader_rows = examples[0].data;
            break;
        }
    });
    return outcome;
}

/// The settings are those of the process; other tests go on without them.
struct Restore {
    ~Restore() {
        at::globalContext().setDeterministicAlgorithms(false, false);
        at::globalContext().setDeterministicCuDNN(false);
    }
};

} // namespace

TEST_CASE("Reproducibility.the_same_run_twice_gives_the_same_bits") {
    const test::Directory directory("reproducibility");
    const Restore restore;
    const auto first = train(directory, 7);
    CHECK(!at::globalContext().deterministicAlgorithms()); // of the function, not of the process
    const auto second = train(directory, 7);
    CHECK(second.parameters.equal(first.parameters));
    CHECK(second.loader_rows.equal(first.loader_rows));
    // The test would notice a difference:
    const auto other = train(directory, 8);
    CHECK(!other.parameters.equal(first.parameters));
    CHECK(!other.loader_rows.equal(first.loader_rows));
    CHECK(!train(directory, std::nullopt).parameters.equal(other.parameters));
}

TEST_CASE("Reproducibility.the_seed_is_in_the_shuffles_of_data_sets") {
    const test::Directory directory("reproducibility-data");
    const Restore restore;
    Trainer<> trainer({.run = {.name = "run", .storage_path = directory.path()},
                       .datasets = {{"x", data::from_tensors({{"x", torch::arange(96)}})}}});
    trainer.fit([](auto& worker) {
        const auto first_rows = [&] {
            auto batches = worker.dataset_shard("x").batches({.size = 16, .shuffle = true});
            batches.set_epoch(0);
            torch::Tensor rows;
            for (auto& batch : batches) {
                rows = rows.defined() ? rows : batch["x"];
            }
            return rows;
        };
        const auto usual = first_rows();
        worker.enable_reproducibility(3);
        const auto third = first_rows();
        CHECK(!third.equal(usual));
        CHECK(first_rows().equal(third));
        worker.enable_reproducibility();
        CHECK(first_rows().equal(usual)); // 0, as in Python's DistributedSampler
    });
}

TEST_CASE("Reproducibility.rows_and_draws_of_a_step_do_not_depend_on_the_number_of_ranks") {
    const test::Directory directory("reproducibility-ranks");
    const Restore restore;
    const data::BatchOptions options{.size = 3, .shuffle = true, .micro_batches = 12};
    const auto rows = data::from_tensors({{"x", torch::arange(100)}});
    // What one rank would take and draw, micro-batch by micro-batch.
    data::BatchOptions seeded = options;
    seeded.seed = 9;
    data::Batches alone({.dataset = rows, .policy = data::Permuted{}, .random_seed = 9}, seeded,
                        std::make_shared<data::Position>());
    std::vector<torch::Tensor> expected_rows;
    std::vector<torch::Tensor> expected_draws;
    for (auto& batch : alone) {
        expected_rows.push_back(batch["x"]);
        expected_draws.push_back(torch::rand({2}));
    }
    REQUIRE(expected_rows.size() == 36);

    Trainer<backend::Mpi, data::Permuted> trainer(
        {.run = {.name = "run", .storage_path = directory.path()}, .datasets = {{"x", rows}}});
    trainer.fit([&](auto& worker) {
        worker.enable_reproducibility(9);
        auto batches = worker.dataset_shard("x").batches(options);
        const auto passes = static_cast<std::size_t>(batches.passes());
        CHECK(passes * static_cast<std::size_t>(worker.size()) == 12);
        CHECK(batches.size() == 3 * batches.passes());
        torch::Tensor counts = torch::zeros({100}, torch::kLong);
        std::size_t number = 0;
        for (auto& batch : batches) {
            const std::size_t step = number / passes;
            const std::size_t expected =
                step * 12 + static_cast<std::size_t>(worker.rank()) * passes + number % passes;
            CHECK(batch["x"].equal(expected_rows[expected]));
            CHECK(torch::rand({2}).equal(expected_draws[expected]));
            counts.index_add_(0, batch["x"], torch::ones_like(batch["x"]));
            ++number;
        }
        CHECK(number == 3 * passes);
        worker.all_reduce(counts);
        CHECK(counts.equal(torch::ones({100}, torch::kLong)));
    });
}
