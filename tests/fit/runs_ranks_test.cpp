// SPDX-License-Identifier: Apache-2.0
// Searches over rtrain::Fit; and trainings that fit/runs.py kills, preempts and starts again.
#include "fit_models.hpp"
#include "support/bits.hpp"

#include <rtrain/base/json.hpp>
#include <rtrain/fit.hpp>
#include <rtrain/tune/schedule/asha.hpp>
#include <rtrain/tuner.hpp>

#include <boost/describe/class.hpp>
#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <string>

using namespace rtrain;
using test::code_of;

namespace fit_test {

struct Hyper {
    double lr = 0.05;
    int hidden = 16;
};
BOOST_DESCRIBE_STRUCT(Hyper, (), (lr, hidden))

namespace {

/// A module with its own configuration.
struct Typed : torch::nn::Module {
    using Config = Hyper;
    explicit Typed(const Hyper& hyper) : lr(hyper.lr) {
        torch::manual_seed(3);
        net = register_module("net", torch::nn::Sequential(torch::nn::Linear(784, hyper.hidden),
                                                           torch::nn::Linear(hyper.hidden, 10)));
    }
    at::Tensor training_step(const data::Batch& batch, Step& /*step*/) {
        return torch::cross_entropy_loss(net->forward(batch["image"].flatten(1)), batch["label"]);
    }
    at::Tensor validation_step(const data::Batch& batch, Step& step) {
        return training_step(batch, step);
    }
    auto configure_optimizers(const Plan& /*plan*/) { return torch::optim::SGD(parameters(), lr); }
    double lr;
    torch::nn::Sequential net{nullptr};
};

TrainerOptions typed_options(const std::filesystem::path& directory, const std::string& name) {
    return {.scaling = {.threads_per_worker = 1},
            .run = {.name = name, .storage_path = directory},
            .datasets = {{"train", test::fashion_mnist(32)}, {"val", test::fashion_mnist(16)}}};
}

} // namespace

TEST_CASE("Fit.gives_the_module_its_own_configuration" * doctest::timeout(60)) {
    const test::Directory directory("fit-typed");
    const auto trained = [&](const TrainConfig& config, const std::string& name, auto fit) {
        TrainerOptions options = typed_options(directory.path(), name);
        options.config = config;
        return Trainer<>(std::move(options)).fit(fit);
    };
    const Fit<Typed> fit{{.batch_size = 8}};
    const Result result = trained({{"hidden", 4}}, "json", fit);
    const auto stored = json::parse_object(test::read(result.path / "params.json"));
    CHECK(stored == boost::json::object{{"hidden", 4}, {"lr", 0.05}});
    CHECK(trained(Hyper{.hidden = 4}, "struct", fit).metric("val/loss") ==
          result.metric("val/loss"));
    const Fit<Typed> made{{.batch_size = 8},
                          [](const Hyper& hyper) { return std::make_shared<Typed>(hyper); }};
    CHECK(trained({{"hidden", 4}}, "made", made).metric("val/loss") == result.metric("val/loss"));
    CHECK(code_of([&] { trained({{"hiden", 4}}, "key", fit); }) == "RT-C167");
    CHECK(code_of([&] { trained({{"lr", "fast"}}, "text", fit); }) == "RT-C168");
    CHECK(code_of([&] { trained({{"hidden", 1.5}}, "fraction", fit); }) == "RT-C168");
    CHECK(code_of([&] {
              trained({{"hidden", std::int64_t{1} << 40}}, "large", fit);
          }) == "RT-C168");
    CHECK(!std::filesystem::exists(directory.path() / "key"));
}

/// Runs alone: each trial's process repeats the test cases before its search.
TEST_CASE("Fit.is_tuned_with_asha" * doctest::skip() * doctest::timeout(120)) {
    const test::Directory directory("fit-asha");
    Tuner tuner{Trainer<>(typed_options(directory.path(), "unused")),
                Fit<Typed>{{.max_epochs = 4, .batch_size = 8, .seed = 5}},
                TunerOptions{.param_space = {{"lr", tune::grid_search({0.05, 0.0, 1e-6})}},
                             .tune = {.metric = "val/loss",
                                      .mode = "min",
                                      .scheduler = tune::Asha({.max_t = 4,
                                                               .grace_period = 1,
                                                               .reduction_factor = 2,
                                                               .stop_last_trials = false}),
                                      .max_concurrent_trials = 1},
                             .run = {.name = "search", .storage_path = directory.path()}}};
    const ResultGrid results = tuner.fit();
    REQUIRE(results.size() == 3);
    CHECK(results.get_best_result().config.at("lr") == 0.05);
    CHECK(results[0].metrics_history.size() == 4);
    CHECK(results[1].metrics_history.size() == 1);
    CHECK(results[2].metrics_history.size() == 1);
}

namespace {

std::string setting(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

/// Raises the signal FIT_SIGNAL in step FIT_STEP of the last rank, or in the validation after it.
struct Raise {
    void on_before_optimizer_step(torch::nn::Module& /*module*/,
                                  torch::optim::Optimizer& /*optimizer*/, Step& step) const {
        raise_in("train", step);
    }
    void on_validation_batch_end(torch::nn::Module& /*module*/, const data::Batch& /*batch*/,
                                 Step& step) const {
        raise_in("validation", step);
    }
    static void raise_in(const std::string& stage, const Step& step) {
        if (const std::string signal = setting("FIT_SIGNAL");
            !signal.empty() && stage == setting("FIT_STAGE") &&
            step.rank() == step.plan().ranks() - 1 &&
            step.steps() == std::stol(setting("FIT_STEP"))) {
            ::raise(std::stoi(signal));
        }
    }
};

/// Leaves a line about all that a training ends with; of metrics so many digits.
void leave(const Result& result, const std::filesystem::path& storage, int digits) {
    if (launch::env_int("OMPI_COMM_WORLD_RANK").value_or(0) == 0) {
        std::ofstream(storage / "end")
            << std::setprecision(digits) << test::hash_of_bits(0, seen().weights) << ' '
            << seen().steps << ' ' << result.metric("loss") << ' ' << result.metric("val/loss")
            << ' ' << result.stop_reason << ' ' << Counter::at_end << '\n';
    }
}

} // namespace

TEST_CASE("FitRuns.training" * doctest::skip()) {
    const std::filesystem::path storage = setting("FIT_STORAGE");
    FitOptions options{.max_epochs = 9,
                       .batch_size = batch_size,
                       .accumulate = 3,
                       .val_every_steps = 2,
                       .seed = 5};
    if (setting("FIT_VARIANT") == "sharded") {
        options.prepare = ShardedOptions{};
    }
    const Fit<Classifier, Ema, Counter, LrMonitor, Raise> fit{
        options, Ema({.decay = 0.9}), {}, {}, {}};
    const Trained<> training{
        .directory = storage,
        .stop = stop::EarlyStopping{.metric = "val/loss", .mode = "max", .patience = 3}};
    leave(training.run(fit), storage, 17);
}

TEST_CASE("FitRuns.elastic" * doctest::skip()) {
    const std::filesystem::path storage = setting("FIT_STORAGE");
    const Fit<Plain, Ema, Raise> fit{
        {.max_epochs = 2,
         .batch_size = batch_size,
         .accumulate = 6,
         .val_every_steps = 2,
         .seed = 5,
         .prepare = DataParallelOptions{.reduction_order = ReductionOrder::micro_batches}},
        Ema({.decay = 0.9}),
        {}};
    const Trained<backend::Mpi, data::Permuted> training{
        .directory = storage, .rows = 120 * batch_size / launch::ranks().value_or(1)};
    leave(training.run(fit), storage, 6); // means over ranks are summed in another order
}

} // namespace fit_test
