// SPDX-License-Identifier: Apache-2.0
// Options of rtrain::Fit, and what configure_optimizers may return.
#include "fit_models.hpp"

#include <rtrain/fit.hpp>

#include <ATen/record_function.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

using namespace rtrain;

namespace fit_test {
namespace {

/// Counts what it is given, and looks at its gradients before each step.
struct Counting : Classifier {
    using Classifier::Classifier;
    void on_train_batch_end(const data::Batch& batch, Step& /*step*/) { trained += batch.size(); }
    void on_validation_start(Step& /*step*/) { ++validations; }
    void on_validation_batch_end(const data::Batch& batch, Step& /*step*/) {
        validated += batch.size();
    }
    void on_test_batch_end(const data::Batch& batch, Step& /*step*/) { tested += batch.size(); }
    void optimizer_step(Step& /*step*/, const std::function<void()>& next) {
        for (const auto& parameter : parameters()) {
            largest = std::max(largest, parameter.grad().abs().max().item<double>());
        }
        next();
    }
    static void reset() {
        trained = validated = tested = 0;
        validations = 0;
        largest = 0;
    }
    static inline std::int64_t trained = 0;
    static inline std::int64_t validated = 0;
    static inline std::int64_t tested = 0;
    static inline int validations = 0;
    static inline double largest = 0; ///< element of a gradient
};

} // namespace

TEST_CASE("Fit.takes_data_sets_and_limits_from_its_options" * doctest::timeout(120)) {
    seen().fail_at = -1;
    const test::Directory directory("fit-options");
    const auto ranks = launch::ranks().value_or(1);
    const auto rows = [&](std::int64_t batches) {
        return test::fashion_mnist(batches * batch_size * ranks);
    };
    const auto run = [&](const std::string& name, const auto& function) {
        Trainer<> trainer({.config = {{"lr", 0.05}},
                           .scaling = {.threads_per_worker = 1},
                           .run = {.name = name, .storage_path = directory.path()},
                           .datasets = {{"rows", rows(5)}, {"held", rows(3)}, {"rest", rows(2)}}});
        return trainer.fit(function);
    };
    const Fit<Counting> fit{{.max_epochs = 3,
                             .batch_size = batch_size,
                             .clip_value = 1e-3,
                             .val_every_epochs = 2,
                             .limit_val_batches = 2,
                             .sanity_val_batches = 0,
                             .train = "rows",
                             .val = "held",
                             .test = "rest"}};
    Counting::reset();
    const Result result = run("trained", fit);
    CHECK(Counting::trained == 3 * 5 * batch_size);
    CHECK(Counting::validations == 2); // after the second epoch, and the last
    CHECK(Counting::validated == 2 * 2 * batch_size);
    CHECK(result.metrics_history.size() == 2);
    CHECK(Counting::largest == doctest::Approx(1e-3));
    REQUIRE(result.checkpoint);
    run("tested", fit.test(*result.checkpoint));
    CHECK(Counting::tested == 2 * batch_size);
    Counting::reset();
    run("overfitted", Fit<Counting>{{.max_epochs = 2,
                                     .batch_size = batch_size,
                                     .overfit_batches = 1,
                                     .sanity_val_batches = 0,
                                     .train = "rows",
                                     .val = "held"}});
    CHECK(Counting::trained == 2 * batch_size);
    CHECK(Counting::validated == 2 * batch_size);
    CHECK(Counting::largest > 1e-3);
}

namespace {

/// Layers with an optimizer each, one of which follows epochs.
struct Layered : Classifier {
    using Classifier::Classifier;
    auto configure_optimizers(const Plan& plan) {
        return std::tuple(
            optimize(torch::optim::SGD(net->in->parameters(), 0.1),
                     schedule::Step{.step_size = 1, .gamma = 0.5}, {.every = Every::epoch}),
            optimize(torch::optim::Adam(net->out->parameters(), 0.1),
                     schedule::Linear{.steps = plan.steps(), .start_factor = 1, .end_factor = 0.5}),
            torch::optim::SGD(net->batch_norm->parameters(), 0.1));
    }
    void on_train_epoch_start(Step& step) {
        CHECK(step.optimizers() == 3);
        for (std::size_t i = 0; i < 3; ++i) {
            rates.push_back(step.optimizer(i).param_groups().front().options().get_lr());
        }
    }
    void on_train_start(Step& /*step*/) { before = test::flat(*net); }
    void on_train_end(Step& step) {
        Classifier::on_train_end(step);
        for (const auto& layer : {net->in->weight, net->out->weight, net->batch_norm->weight}) {
            CHECK(layer.grad().defined());
        }
        CHECK(!before.equal(test::flat(*net)));
    }
    static inline std::vector<double> rates;
    at::Tensor before;
};

} // namespace

TEST_CASE("Fit.steps_all_optimizers_of_a_tuple" * doctest::timeout(120)) {
    const test::Directory directory("fit-tuple");
    Trained<> training{.directory = directory.path()};
    const FitOptions options{.max_epochs = 2, .batch_size = batch_size, .seed = 5};
    Layered::rates.clear();
    training.run(Fit<Layered>{options});
    const std::vector<double> expected{0.1, 0.1, 0.1, 0.05, 0.075, 0.1};
    REQUIRE(Layered::rates.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(Layered::rates[i] == doctest::Approx(expected[i]));
    }
    const at::Tensor whole = seen().weights;
    training.name = "resumed";
    seen().fail_at = 15; // in the second epoch
    CHECK(test::code_of([&] { training.run(Fit<Layered>{options}); }) == "RT-T1");
    seen().fail_at = -1;
    training.run(Fit<Layered>{options});
    CHECK(seen().weights.equal(whole));
}

namespace {

/// Counts operators of libtorch in this thread, between epochs' start() and stop().
struct Operators {
    static inline std::int64_t count = 0;
    static inline at::CallbackHandle handle = 0;
    static void start() {
        handle = at::addThreadLocalCallback(
            at::RecordFunctionCallback([](const at::RecordFunction& /*call*/)
                                           -> std::unique_ptr<at::ObserverContext> {
                ++count;
                return nullptr;
            }).scopes({at::RecordScope::FUNCTION}));
    }
    static void stop() { at::removeCallback(handle); }
};

struct Dispatching : Classifier {
    using Classifier::Classifier;
    auto configure_optimizers(const Plan& /*plan*/) {
        return torch::optim::SGD(parameters(), torch::optim::SGDOptions(lr).momentum(0.9));
    }
    void on_train_epoch_start(Step& /*step*/) { Operators::start(); }
    void on_train_epoch_end(Step& /*step*/) { Operators::stop(); }
};
struct DispatchingAndLogging : Dispatching {
    using Dispatching::Dispatching;
    at::Tensor training_step(const data::Batch& batch, Step& step) {
        const at::Tensor loss = loss_of(batch);
        step.log("a", loss);
        step.log("b", loss, {.reduce = metric::Reduction::max});
        step.log("c", 1);
        return loss;
    }
};
/// The same training, written by hand.
struct DispatchingLoop {
    void operator()(auto& worker, const Config& config) const {
        auto model = worker.prepare(std::make_shared<Classifier>(config));
        auto optimizer = worker.prepare(torch::optim::SGD(
            model->parameters(), torch::optim::SGDOptions(model->lr).momentum(0.9)));
        auto state = State{}.add("model", model).add("optimizer", optimizer);
        auto batches = worker.dataset_shard("train").batches({.size = batch_size, .shuffle = true});
        for (const int epoch : worker.epochs(2, state)) {
            Operators::start();
            for (auto& batch : batches) {
                const auto loss = model(batch);
                optimizer.zero_grad();
                loss.backward();
                optimizer.step();
            }
            Operators::stop();
            worker.report({{"epoch", epoch}}, state);
        }
    }
};

} // namespace

TEST_CASE("Fit.adds_no_operators_to_a_step" * doctest::timeout(120)) {
    const test::Directory directory("fit-operators");
    Trained<backend::Local> training{.directory = own_directory(directory.path()),
                                     .validates = false};
    const auto count = [&](const std::string& name, const auto& function) {
        Operators::count = 0;
        training.name = name;
        training.run(function);
        return Operators::count;
    };
    const FitOptions options{.max_epochs = 2, .batch_size = batch_size};
    const std::int64_t by_hand = count("loop", DispatchingLoop{});
    const std::int64_t by_fit = count("fit", Fit<Dispatching>{options});
    CHECK(by_fit > 0);
    CHECK(by_fit <= by_hand);
    CHECK(count("logged", Fit<DispatchingAndLogging>{options}) == by_fit);
}

} // namespace fit_test
