// SPDX-License-Identifier: Apache-2.0
// What creators make, on ranks that mpirun has started: the calls of a CreatorTrainer are those of
// a loop written by hand. creators_test.py has what happens between processes.
#include "support/training.hpp"

#include <rtrain/creators.hpp>
#include <rtrain/creators/any_replica.hpp>
#include <rtrain/creators/call_service.hpp>
#include <rtrain/creators/client.hpp>
#include <rtrain/creators/creator_run.hpp>
#include <rtrain/creators/creator_trainer.hpp>
#include <rtrain/creators/data.hpp>
#include <rtrain/creators/replica.hpp>
#include <rtrain/creators/settings.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace creators_test {

using namespace rtrain;
using test::code_of;

namespace {

/// Rows as torch::data has them.
struct Rows : torch::data::Dataset<Rows> {
    std::int64_t rows;
    explicit Rows(std::int64_t count) : rows(count) {}
    torch::data::Example<> get(std::size_t index) override {
        const auto x = static_cast<double>(index) / static_cast<double>(rows);
        return {torch::tensor({x, 1 - x}), torch::tensor({2 * x + 1})};
    }
    [[nodiscard]] std::optional<std::size_t> size() const override {
        return static_cast<std::size_t>(rows);
    }
};

torch::nn::Linear make_model() {
    torch::manual_seed(5);
    return torch::nn::Linear(2, 1);
}

template <class Data, class Backend = backend::Mpi>
auto options(const std::filesystem::path& storage, const std::string& name, Data data,
             Backend backend = {}) {
    return CreatorOptions{.model_creator = [](const Config&) { return make_model(); },
                          .data_creator = data,
                          .optimizer_creator =
                              [](auto& model, const Config&) {
                                  return torch::optim::SGD(
                                      model->parameters(),
                                      torch::optim::SGDOptions(0.1).momentum(0.9));
                              },
                          .batch_size = 8,
                          .backend = backend,
                          .run = {.name = name,
                                  .storage_path = storage,
                                  .failure = {.max_failures = 1},
                                  .console = {.verbose = 0}}};
}

data::Dataset rows() {
    return data::from_dataset(Rows(32));
}

/// The weights that a loop by hand has after so many epochs.
torch::Tensor by_hand(const std::filesystem::path& storage, int epochs) {
    torch::Tensor weights;
    Trainer<> trainer{
        {.run = {.name = "hand", .storage_path = storage, .console = {.verbose = 0}}}};
    trainer.fit([&](auto& worker) {
        const auto module = make_model();
        auto model = worker.prepare(module);
        torch::optim::SGD optimizer(module->parameters(),
                                    torch::optim::SGDOptions(0.1).momentum(0.9));
        auto state = State{}.add("model", model).add("optimizer", optimizer);
        auto batches = worker.dataset_shard("train", rows())
                           .batches({.size = 8 / worker.size(), .shuffle = true});
        for ([[maybe_unused]] const int epoch : worker.epochs(epochs, state)) {
            for (auto& batch : batches) {
                optimizer.zero_grad();
                torch::mse_loss(model(batch["data"]), batch["target"]).backward();
                optimizer.step();
            }
            worker.report({{"epoch", epoch}}, state);
        }
        weights = module->weight.detach().clone();
    });
    return weights;
}

int size() {
    return launch::ranks().value_or(1);
}
/// Rows of an epoch of 32: each rank gets equally many.
int rows_read() {
    return (32 + size() - 1) / size() * size();
}

} // namespace

TEST_CASE("CreatorTrainer.calls_equal_the_epochs_of_fit" * doctest::timeout(300)) {
    const test::Directory directory("creators");
    const auto data = [](const Config&) { return std::pair(rows(), rows()); };
    std::optional<CreatorTrainer<decltype(options("", "", data))>> trainer;
    trainer.emplace(options(directory.path(), "calls", data));
    const TrainStats first = trainer->train();
    CHECK(first.batch_processed == rows_read());
    const int batch = 8 / size();
    CHECK(first.batch_count == (rows_read() / size() + batch - 1) / batch);
    CHECK(first.learning_rate == 0.1);
    CHECK(first.batch_time > 0);
    const double before = trainer->validate().validation_loss;
    (void)trainer->train({.epochs = 2});
    const ValidationStats after = trainer->validate();
    CHECK(after.validation_loss < before);
    CHECK(!after.mean_accuracy);
    const auto model = trainer->get_model();
    CHECK(code_of([&] { Trainer<>({}).fit([](auto&) {}); }) == "RT-C23"); // it trains
    trainer.reset();
    CHECK(model->weight.detach().equal(by_hand(directory.path(), 3)));
}

TEST_CASE("CreatorTrainer.data_sets_and_loaders_of_torch" * doctest::timeout(300)) {
    const test::Directory directory("creators-torch");
    const auto weights_of = [&](const std::string& name, auto data) {
        CreatorTrainer trainer{options(directory.path(), name, data)};
        CHECK(trainer.train().batch_processed == rows_read());
        CHECK(code_of([&] { (void)trainer.validate(); }) == "RT-F33");
        return trainer.get_model()->weight.detach().clone();
    };
    const auto of_rtrain = weights_of("rtrain", [](const Config&) { return rows(); });
    CHECK(of_rtrain.equal(weights_of("torch", [](const Config&) { return Rows(32); })));
    (void)weights_of("loader", [](const Config&) {
        return torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
            Rows(32).map(torch::data::transforms::Stack<>()), static_cast<std::size_t>(8 / size()));
    });
}

TEST_CASE("CreatorTrainable.steps_are_train_and_validate" * doctest::timeout(300)) {
    const test::Directory directory("creators-trainable");
    const auto data = [](const Config&) { return std::pair(rows(), rows()); };
    const CreatorTrainable trainable{options("", "", data), 2};
    const Result result =
        Trainer<>{
            {.run = {.name = "trial", .storage_path = directory.path(), .console = {.verbose = 0}}}}
            .fit(trainable);
    CHECK(result.metrics_history.size() == 2);
    CreatorTrainer trainer{options(directory.path(), "calls", data)};
    const TrainStats trained = trainer.train({.epochs = 1});
    CHECK(result.metrics_history[0].at("train_loss").to_number<double>() == trained.train_loss);
    CHECK(result.metrics_history[0].at("validation_loss").to_number<double>() ==
          trainer.validate().validation_loss);
}

TEST_CASE("CreatorTrainer.calls_within_a_call_are_refused" * doctest::timeout(300)) {
    const test::Directory directory("creators-nested");
    std::function<void()> within;
    std::string code;
    CreatorTrainer trainer{CreatorOptions{
        .model_creator = [](const Config&) { return make_model(); },
        .data_creator = [](const Config&) { return rows(); },
        .loss_creator =
            [&](const Config&) {
                return [&](const at::Tensor& output, const at::Tensor& target) {
                    code = code_of(within);
                    return torch::mse_loss(output, target);
                };
            },
        .batch_size = 8,
        .run = {.name = "run", .storage_path = directory.path(), .console = {.verbose = 0}}}};
    within = [&] { (void)trainer.train(); };
    (void)trainer.train({.num_steps = 1});
    CHECK(code == "RT-F35"); // the run has its own thread
}

TEST_CASE("CreatorTrainer.is_refused_in_a_training_function" * doctest::timeout(300)) {
    const test::Directory directory("creators-inside");
    const auto given = options(directory.path(), "inside", [](const Config&) { return rows(); });
    std::string code;
    Trainer<>{
        {.run = {.name = "outside", .storage_path = directory.path(), .console = {.verbose = 0}}}}
        .fit([&](auto& worker) {
            code = code_of([&] { CreatorTrainer trainer{given}; });
            worker.report({{"refused", !code.empty()}});
        });
    CHECK(code == "RT-C23");
}

TEST_CASE("CreatorTrainer.a_stopped_run_trains_no_further" * doctest::timeout(300)) {
    const test::Directory directory("creators-stop");
    auto given = options(directory.path(), "run", [](const Config&) { return rows(); });
    given.run.stop = stop::MaxIterations{2};
    CreatorTrainer trainer{given};
    CHECK(trainer.train({.epochs = 5}).batch_processed == 2 * rows_read()); // two epochs
    CHECK(code_of([&] { (void)trainer.train(); }) == "RT-F40");
    CHECK(trainer.get_model()->weight.numel() == 2);
}

TEST_CASE("CreatorOptions.bad_values_are_errors") {
    const test::Directory directory("creators-bad");
    const auto data = [](const Config&) { return rows(); };
    auto few = options(directory.path(), "few", data);
    few.batch_size = 0;
    CHECK(code_of([&] { CreatorTrainer trainer{few}; }) == "RT-F32");
    few.batch_size = 2;
    few.num_replicas = 3;
    CHECK(code_of([&] { CreatorTrainer trainer{few}; }) == "RT-F32");
    CHECK(rtrain::detail::batch_size_of_rank(10, 3) == 3);
    for (const char* const name : {"nccl", "tcp", ""}) {
        CHECK(code_of([&] { rtrain::detail::require_mpi(name); }) == "RT-F38");
    }
    rtrain::detail::require_mpi("auto");
    rtrain::detail::require_mpi("gloo");
}

TEST_CASE("CreatorData.the_target_is_named_or_known") {
    const auto tensor = [](double value) { return torch::full({2}, value); };
    const auto target = [](const data::Batch& batch,
                           const rtrain::detail::CreatorSettings& settings = {}) {
        return rtrain::detail::pair_of(batch, settings).second[0].item<double>();
    };
    CHECK(target(data::Batch({{"image", tensor(1)}, {"label", tensor(2)}})) == 2);
    CHECK(target(data::Batch({{"y", tensor(2)}, {"x", tensor(1)}})) == 2);
    const data::Batch three({{"a", tensor(1)}, {"b", tensor(2)}, {"c", tensor(3)}});
    CHECK(code_of([&] { (void)target(three); }) == "RT-F36");
    CHECK(code_of([&] {
              (void)target(data::Batch({{"a", tensor(1)}, {"b", tensor(2)}}));
          }) == "RT-F36");
    CHECK(target(three, {.input_column = "a", .target_column = "c"}) == 3);
    CHECK(code_of([&] { (void)target(three, {.input_column = "a", .target_column = "d"}); }) ==
          "RT-D2");
}

TEST_CASE("CreatorData.rows_come_back_from_a_file") {
    const test::Directory directory("creators-rows");
    const auto file =
        directory.path() / (std::to_string(launch::rank().value_or(0)) + ".safetensors");
    const data::Dataset rows =
        data::from_tensors({{"x", torch::arange(6).reshape({3, 2})}, {"y", torch::ones({3})}});
    rtrain::detail::write_rows(rows, file);
    const data::Batch back = rtrain::detail::read_rows(file).rows(torch::arange(3));
    CHECK(back["x"].equal(torch::arange(6).reshape({3, 2})));
    CHECK(back["y"].equal(torch::ones({3})));
}

} // namespace creators_test
