// SPDX-License-Identifier: Apache-2.0
// Callbacks of rtrain::Fit, also in other loops, and parts of the loop that a module replaces.
#include "fit_models.hpp"

#include <rtrain/fit.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace rtrain;
using test::code_of;
using test::contains;

namespace fit_test {
namespace {

/// What torch.optim.swa_utils computes: tests/fixtures/fit/make_averages.py.
std::map<std::string, std::vector<torch::Tensor>> torch_s_averages() {
    std::map<std::string, std::vector<torch::Tensor>> all;
    std::ifstream file(RTRAIN_FIT_DATA "/averages.txt");
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        words >> name;
        std::vector<double> numbers;
        for (double number = 0; words >> number;) {
            numbers.push_back(number);
        }
        all[name].push_back(torch::tensor(numbers, torch::kFloat));
    }
    return all;
}
void set_weights(torch::nn::Module& module, const torch::Tensor& numbers) {
    const torch::NoGradGuard no_grad;
    std::int64_t at = 0;
    for (auto& parameter : module.parameters()) {
        parameter.copy_(numbers.slice(0, at, at + parameter.numel()).view(parameter.sizes()));
        at += parameter.numel();
    }
}
torch::Tensor joined(const std::vector<torch::Tensor>& tensors) {
    std::vector<torch::Tensor> flat;
    for (const auto& tensor : tensors) {
        flat.push_back(tensor.detach().flatten());
    }
    return torch::cat(flat);
}
bool near(const torch::Tensor& one, const torch::Tensor& other) {
    return torch::allclose(one, other, 1e-6, 1e-6);
}

} // namespace

TEST_CASE("Fit.averages_of_weights_are_torch_s" * doctest::timeout(60)) {
    const auto expected = torch_s_averages();
    REQUIRE(expected.size() == 6);
    torch::nn::BatchNorm1d norm(3);
    torch::nn::Sequential net(norm, torch::nn::Linear(3, 2));
    Ema ema(*net, {.decay = 0.9});
    Swa swa(*net);
    for (std::size_t step = 0; step < expected.at("weights").size(); ++step) {
        set_weights(*net, expected.at("weights")[step]);
        ema.update();
        swa.update();
        CHECK(near(joined(ema.averages()), expected.at("ema")[step]));
        CHECK(near(joined(swa.averages()), expected.at("swa")[step]));
    }
    const test::Directory directory("fit-averages");
    Trainer<> trainer({.run = {.name = "norm", .storage_path = directory.path()}});
    trainer.fit([&](auto& worker) {
        const auto own = joined(net->parameters());
        {
            const auto averaged = swa.applied();
            CHECK(near(joined(net->parameters()), expected.at("swa").back()));
            std::vector<torch::Tensor> mine;
            for (std::size_t i = 0; i < expected.at("batch").size(); ++i) {
                if (static_cast<int>(i) % worker.size() == worker.rank()) {
                    mine.push_back(expected.at("batch")[i].view({-1, 3}));
                }
            }
            update_batch_norm(worker, *net, mine,
                              [&](const torch::Tensor& batch) { net->forward(batch); });
            CHECK(norm->options.momentum() == 0.1);
            update_batch_norm(worker, *torch::nn::BatchNorm1d(3), mine,
                              [](const auto& /*batch*/) {});
        }
        CHECK(near(norm->running_mean, expected.at("mean")[0]));
        CHECK(near(norm->running_var, expected.at("variance")[0]));
        CHECK(joined(net->parameters()).equal(own));
        worker.report({{"loss", 1}});
    });
}

namespace {

/// Trains with both averages, and returns their checkpoint.
struct Averaged {
    Fit<Classifier, Ema, Swa> fit;
    Result result;

    Averaged(const Trained<>& training, FitOptions options)
        : fit(std::move(options), Ema({.decay = 0.9}), Swa({.from_epoch = 1})),
          result(training.run(fit)) {}
};

} // namespace

TEST_CASE("Fit.averages_of_sharded_models_are_those_of_whole_ones" * doctest::timeout(300)) {
    seen().fail_at = -1;
    const test::Directory directory("fit-sharded-averages");
    Trained<> training{.directory = directory.path(), .name = "whole"};
    FitOptions options{.max_epochs = 3, .batch_size = batch_size, .seed = 5};
    const Averaged whole(training, options);
    const torch::Tensor weights = seen().weights;
    training.name = "whole-tested";
    const Result whole_tested = training.run(whole.fit.test(*whole.result.checkpoint));
    int number = 0;
    for (const ShardedOptions& how :
         {ShardedOptions{}, ShardedOptions{.share = Share::none},
          ShardedOptions{.level = Shard::gradients, .share = Share::none},
          ShardedOptions{.step_in_backward = true}}) {
        CAPTURE(number);
        options.prepare = how;
        training.name = "sharded-" + std::to_string(number++);
        const Averaged sharded(training, options);
        CHECK(seen().weights.equal(weights));
        CHECK(sharded.result.metric("val/loss") == whole.result.metric("val/loss"));
        const std::string name = training.name;
        training.name = name + "-tested";
        CHECK(training.run(sharded.fit.test(*sharded.result.checkpoint)).metric("test/loss") ==
              whole_tested.metric("test/loss"));
        training.name = name + "-of-whole";
        CHECK(training.run(sharded.fit.test(*whole.result.checkpoint)).metric("test/loss") ==
              whole_tested.metric("test/loss"));
        training.name = name + "-on-whole";
        CHECK(training.run(whole.fit.test(*sharded.result.checkpoint)).metric("test/loss") ==
              whole_tested.metric("test/loss"));
    }
}

TEST_CASE("Fit.averages_in_other_loops" * doctest::timeout(120)) {
    const test::Directory directory("fit-loop");
    const auto run = [&](const std::string& name, const auto& function) {
        Trainer<> trainer({.run = {.name = name, .storage_path = directory.path()}});
        trainer.fit(function);
    };
    const auto train = [](auto& worker, auto model, int steps, const auto& check) {
        auto optimizer = worker.prepare(torch::optim::SGD(model->parameters(), 0.1));
        Ema ema(model, {.decay = 0.5});
        auto state = State{}.add("model", model).add("ema", ema);
        for (const int step : worker.epochs(steps, state)) {
            model(torch::full({2, 3}, 1.0 + step)).square().mean().backward();
            optimizer.step();
            optimizer.zero_grad();
            ema.update();
            worker.report({{"step", step}}, state);
        }
        check(ema);
    };
    torch::Tensor whole;
    const auto linear = [] {
        torch::manual_seed(1);
        return torch::nn::Linear(3, 2);
    };
    run("whole", [&](auto& worker) {
        auto model = worker.prepare(linear());
        train(worker, model, 4, [&](Ema& ema) {
            const auto averaged = ema.applied();
            whole = joined(model->parameters()).clone();
        });
    });
    for (const int steps : {2, 4}) { // the second resumes the first
        run("sharded", [&](auto& worker) {
            auto model = worker.prepare(linear(), ShardedOptions{});
            train(worker, model, steps, [&](Ema& ema) {
                const auto own = joined(model->parameters()).clone();
                {
                    const auto averaged = ema.applied();
                    CHECK(joined(model->parameters()).equal(whole) == (steps == 4));
                }
                CHECK(joined(model->parameters()).equal(own));
                if (worker.size() > 1) {
                    CHECK(code_of([&] { Ema of_module(*model); }) == "RT-F19");
                }
            });
        });
    }
    CHECK(code_of([&] {
              run("throws", [&](auto& worker) {
                  auto model = worker.prepare(linear(), ShardedOptions{});
                  train(worker, model, 1, [&](Ema& ema) {
                      const auto averaged = ema.applied();
                      if (worker.rank() == worker.size() - 1) {
                          throw std::runtime_error("as planned");
                      }
                      worker.barrier();
                  });
              });
          }) == "RT-T1");
    CHECK(code_of([] { Ema().update(); }) == "RT-F61");
    CHECK(code_of([] { (void)Swa().applied(); }) == "RT-F61");
    CHECK(code_of([] { Ema ema({.decay = 1}); }) == "RT-F10");
    CHECK(code_of([] { Swa swa({.from_epoch = -1}); }) == "RT-F10");
}

namespace {

/// Notes what a test compares at the end of each epoch.
struct Watch {
    static inline std::vector<torch::Tensor> first; ///< weights of the first layer
    static inline std::vector<double> rates;
    static inline int clipped = 0;
    static inline int skipped = 0;
    static void reset() {
        first.clear();
        rates.clear();
        clipped = 0;
        skipped = 0;
    }
    void on_train_epoch_start(Classifier& module, Step& step) const {
        first.push_back(module.net->in->weight.detach().clone());
        rates.push_back(step.optimizer().param_groups().front().options().get_lr());
    }
};

struct Overriding : Classifier {
    using Classifier::Classifier;
    void configure_gradient_clipping(Step& /*step*/) {
        ++Watch::clipped;
        torch::nn::utils::clip_grad_value_(parameters(), 1e-3);
    }
    void optimizer_step(Step& step, const std::function<void()>& next) {
        if (step.steps() % 2 == 0) {
            next();
        } else {
            ++Watch::skipped;
        }
    }
};

/// Its rate falls when "val/flat" does not improve.
struct Flat : Classifier {
    using Classifier::Classifier;
    at::Tensor validation_step(const data::Batch& batch, Step& step) {
        step.log("flat", 1.0);
        return loss_of(batch);
    }
    auto configure_optimizers(const Plan& /*plan*/) {
        return optimize(torch::optim::SGD(parameters(), 0.1),
                        PlateauOptions{.factor = 0.5, .patience = 0}, {.monitor = "val/flat"});
    }
};

/// Ends training after the second epoch, if it may.
struct Stopping : Classifier {
    using Classifier::Classifier;
    void on_train_batch_end(const data::Batch& /*batch*/, Step& step) {
        if (step.epoch() == 1 && step.rank() == 0) {
            step.stop();
        }
    }
};

struct Decayed : Classifier {
    using Classifier::Classifier;
    auto configure_optimizers(const Plan& /*plan*/) {
        torch::optim::AdamWOptions with(lr);
        with.weight_decay(0.1);
        auto groups = no_decay(*this, with);
        CHECK(groups.size() == 2);
        CHECK(groups[0].params().size() == 2); // of two linear layers
        CHECK(groups[1].params().size() == 4); // and their biases, and a norm's
        return torch::optim::AdamW(std::move(groups), with);
    }
    void on_train_start(Step& step) {
        const auto& groups = step.optimizer().param_groups();
        const auto decay = [&](std::size_t number) {
            return static_cast<const torch::optim::AdamWOptions&>(groups[number].options())
                .weight_decay();
        };
        CHECK(decay(0) == 0.1);
        CHECK(decay(1) == 0);
    }
};

/// A callback of Fit, on each rank in steps, and of the run, on rank 0 after reports.
struct OfBoth {
    static inline int epochs = 0;
    static inline int reports = 0;
    void on_train_epoch_end(Classifier& /*module*/, Step& /*step*/) const { ++epochs; }
    void after_report(const track::RunInfo& /*run*/, const track::Metrics& /*metrics*/,
                      const std::optional<Checkpoint>& /*checkpoint*/) const {
        ++reports;
    }
};

} // namespace

TEST_CASE("Fit.shares_a_type_of_callback_with_the_run" * doctest::timeout(60)) {
    const test::Directory directory("fit-both");
    RunConfig run{.name = "both", .storage_path = directory.path()};
    run.callbacks = {OfBoth{}};
    Trainer<> trainer(
        {.config = {{"lr", 0.05}}, .run = run, .datasets = {{"train", test::fashion_mnist(16)}}});
    trainer.fit(Fit<Classifier, OfBoth>{{.max_epochs = 2, .batch_size = batch_size}, {}});
    CHECK(OfBoth::epochs == 2);
    const bool is_rank_0 = launch::env_int("OMPI_COMM_WORLD_RANK").value_or(0) == 0;
    CHECK(OfBoth::reports == (is_rank_0 ? 2 : 0));
}

TEST_CASE("Fit.calls_other_callbacks_and_overrides" * doctest::timeout(300)) {
    seen().fail_at = -1;
    const test::Directory directory("fit-callbacks");
    Trained<> training{.directory = directory.path()};
    const auto run = [&](const std::string& name, const auto& fit) {
        Watch::reset();
        training.name = name;
        return training.run(fit);
    };
    const FitOptions options{.max_epochs = 3, .batch_size = batch_size, .seed = 5};
    SUBCASE("Freeze") {
        const DataParallelOptions unused{.find_unused_parameters = true};
        FitOptions with = options;
        with.prepare = unused;
        run("freeze",
            Fit<Classifier, Freeze, Watch>{with, {.parameters = "net.in.", .until_epoch = 1}, {}});
        REQUIRE(Watch::first.size() == 3);
        CHECK(Watch::first[0].equal(Watch::first[1]));
        CHECK(!Watch::first[1].equal(Watch::first[2]));
    }
    SUBCASE("no_decay and LrMonitor") {
        const Result result = run("decay", Fit<Decayed, LrMonitor>{options, {}});
        std::ifstream file(result.path / "steps.jsonl");
        std::stringstream text;
        text << file.rdbuf();
        CHECK(contains(text.str(), R"("lr":)"));
        CHECK(contains(text.str(), R"("lr.1":)"));
    }
    SUBCASE("overrides") {
        FitOptions with = options;
        with.max_epochs = 1;
        run("override", Fit<Overriding>{with});
        CHECK(Watch::clipped == 11);
        CHECK(Watch::skipped == 5);
    }
    SUBCASE("Plateau") {
        run("plateau", Fit<Flat, Watch>{options, {}});
        CHECK(Watch::rates == std::vector<double>{0.1, 0.1, 0.05});
    }
    SUBCASE("step.stop() and min_epochs") {
        FitOptions with = options;
        with.max_epochs = 5;
        run("stop", Fit<Stopping>{with});
        CHECK(seen().steps == 22);
        with.min_epochs = 4;
        run("later", Fit<Stopping>{with});
        CHECK(seen().steps == 44);
        with.min_epochs = 0;
        with.val_every_epochs = 4;
        const Result validated = run("validated", Fit<Stopping>{with});
        CHECK(seen().steps == 22);
        CHECK(validated.metrics_history.size() == 1);
        CHECK(validated.metric("val/loss") > 0);
        CHECK(validated.checkpoint);
    }
}

} // namespace fit_test
