// SPDX-License-Identifier: Apache-2.0
// rtrain::Fit against loops written by hand, Lightning's hooks, interruptions, and bad input.
#include "fit_models.hpp"
#include "support/ranks.hpp"

#include <rtrain/fit.hpp>
#include <rtrain/metrics.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace rtrain;
using test::code_of;
using test::contains;

namespace fit_test {
namespace {

/// The same training, written by hand.
struct ByHand {
    FitOptions options;
    int passes = 1;

    template <class W, class Model>
    void train(W& worker, Model model) const {
        auto batches = worker.dataset_shard("train").batches(
            {.size = options.batch_size,
             .shuffle = true,
             .micro_batches = passes > 1 ? std::int64_t{passes} * worker.size() : 0});
        const std::int64_t steps = 2 * ((batches.size() + passes - 1) / passes);
        auto optimizer = worker.prepare(torch::optim::SGD(
            model->parameters(), torch::optim::SGDOptions(model->lr).momentum(0.9)));
        LrSchedule schedule(optimizer, schedule::Linear{.steps = steps});
        auto state = State{}.add("model", model).add("optimizer", optimizer);
        for (const int epoch : worker.epochs(2, state)) {
            for (auto& batch : batches) {
                const auto loss = model(batch);
                const auto share =
                    passes > 1 ? loss / static_cast<double>(batches.step_passes()) : loss;
                if (!batches.step_ends()) {
                    const auto alone = model.no_sync();
                    share.backward();
                    continue;
                }
                share.backward();
                if (options.clip_norm > 0) {
                    model.clip_grad_norm_(options.clip_norm);
                }
                optimizer.step();
                optimizer.zero_grad();
                schedule.step();
            }
            worker.report({{"epoch", epoch}}, state);
        }
        seen().weights = test::flat(*model);
    }
    template <class W>
    void operator()(W& worker, const Config& config) const {
        worker.enable_reproducibility(*options.seed);
        std::visit(
            [&](const auto& how) {
                train(worker, worker.prepare(std::make_shared<Classifier>(config), how));
            },
            options.prepare);
    }
};

/// The weights of a training with these options by Fit, and by hand; `how`: of the model by hand.
template <class Backend = backend::Mpi>
void check_equal(FitOptions options, const decltype(FitOptions::prepare)& how = {}) {
    const test::Directory directory("fit-equal");
    const auto path = std::is_same_v<Backend, backend::Local> ? own_directory(directory.path())
                                                              : directory.path();
    options.max_epochs = 2;
    options.batch_size = batch_size;
    options.seed = 5;
    Trained<Backend> training{.directory = path, .name = "fit", .validates = false};
    training.run(Fit<Classifier>{options});
    const torch::Tensor by_fit = seen().weights;
    CHECK(seen().steps == 2 * ((11 + options.accumulate - 1) / options.accumulate));
    FitOptions by_hand = options;
    if (how.index() != 0 || std::get<0>(how).autocast) {
        by_hand.prepare = how;
    }
    training.name = "hand";
    training.run(ByHand{by_hand, options.accumulate});
    CHECK(by_fit.equal(seen().weights));
}

} // namespace

TEST_CASE("Fit.equals_the_loop_written_by_hand" * doctest::timeout(300)) {
    SUBCASE("one batch in a step") {
        check_equal({});
    }
    SUBCASE("accumulation, with a short window") {
        check_equal({.accumulate = 4});
    }
    SUBCASE("backend::Local") {
        check_equal<backend::Local>({.accumulate = 4, .clip_norm = 0.5});
    }
    SUBCASE("clipping") {
        check_equal({.accumulate = 2, .clip_norm = 0.5});
    }
    SUBCASE("check_gradients") {
        check_equal({.prepare = DataParallelOptions{.check_gradients = true}});
    }
    SUBCASE("bfloat16") {
        check_equal({.accumulate = 3, .precision = Precision::bfloat16},
                    DataParallelOptions{.autocast = at::kBFloat16});
    }
    SUBCASE("sharded") {
        check_equal({.accumulate = 2, .clip_norm = 0.5, .prepare = ShardedOptions{}},
                    ShardedOptions{});
    }
}

TEST_CASE("Fit.has_the_same_bits_on_any_number_of_ranks" * doctest::timeout(300)) {
    const test::Directory directory("fit-order");
    const int ranks = launch::ranks().value_or(1);
    if (4 % ranks != 0) {
        return;
    }
    const FitOptions options{
        .max_epochs = 2,
        .batch_size = batch_size,
        .accumulate = 4,
        .seed = 5,
        .prepare = DataParallelOptions{.reduction_order = ReductionOrder::micro_batches}};
    const std::int64_t rows = 11 * 4 * batch_size;
    Trained<backend::Mpi, data::Permuted>{
        .directory = directory.path(), .rows = rows / ranks, .validates = false}
        .run(Fit<Plain>{options});
    const torch::Tensor together = seen().weights;
    CHECK(seen().steps == 22);
    Trained<backend::Local, data::Permuted>{
        .directory = own_directory(directory.path()), .rows = rows, .validates = false}
        .run(Fit<Plain>{options});
    CHECK(together.equal(seen().weights));
}

namespace {

/// Compares a training that fails at each of its steps with one that never does.
void check_resumed(const FitOptions& options, const stop::Conditions& stop, std::int64_t every) {
    const test::Directory directory("fit-resume");
    const Fit<Classifier, Ema, Counter, LrMonitor> fit{options, Ema({.decay = 0.9}), {}, {}};
    seen().fail_at = -1;
    Trained<> training{.directory = directory.path(), .name = "whole", .stop = stop};
    const Result whole = training.run(fit);
    const Seen expected = seen();
    const int calls = Counter::at_end;
    for (std::int64_t fail_at = 0; fail_at < expected.steps; fail_at += every) {
        CAPTURE(fail_at);
        training.name = "failed-" + std::to_string(fail_at);
        seen().fail_at = fail_at;
        CHECK(code_of([&] { training.run(fit); }) == "RT-T1");
        seen().fail_at = -1;
        const Result resumed = training.run(fit);
        CHECK(seen().weights.equal(expected.weights));
        CHECK(seen().steps == expected.steps);
        CHECK(Counter::at_end == calls);
        CHECK(resumed.metric("val/loss") == whole.metric("val/loss"));
        CHECK(resumed.metric("loss") == whole.metric("loss"));
        CHECK(resumed.stop_reason == whole.stop_reason);
    }
}

} // namespace

TEST_CASE("Fit.resumes_to_the_same_bits" * doctest::timeout(300)) {
    SUBCASE("between validations within an epoch") {
        check_resumed({.max_epochs = 2,
                       .batch_size = batch_size,
                       .accumulate = 4,
                       .val_every_steps = 2,
                       .seed = 5},
                      {}, 1);
    }
    SUBCASE("until an early stop") {
        check_resumed({.max_epochs = 9, .batch_size = batch_size, .accumulate = 3, .seed = 5},
                      stop::EarlyStopping{.metric = "val/loss", .mode = "max", .patience = 2}, 5);
    }
    SUBCASE("with a GradScaler") {
        check_resumed({.max_epochs = 2,
                       .batch_size = batch_size,
                       .accumulate = 4,
                       .precision = Precision::float16,
                       .val_every_steps = 2,
                       .seed = 5},
                      {}, 5);
    }
    SUBCASE("sharded, with averages of parts") {
        check_resumed({.max_epochs = 2,
                       .batch_size = batch_size,
                       .accumulate = 4,
                       .val_every_steps = 2,
                       .seed = 5,
                       .prepare = ShardedOptions{.share = Share::none}},
                      {}, 2);
    }
    SUBCASE("with gradients carried over epochs") {
        check_resumed({.max_epochs = 3,
                       .batch_size = batch_size,
                       .accumulate = 4,
                       .last_window = LastWindow::carry,
                       .seed = 5},
                      {}, 3);
    }
}

TEST_CASE("Fit.windows_at_the_end_of_an_epoch" * doctest::timeout(120)) {
    const test::Directory directory("fit-windows");
    const auto steps_of = [&](const std::string& name, FitOptions options) {
        options.batch_size = batch_size;
        Trained<>{.directory = directory.path(), .name = name}.run(Fit<Classifier>{options});
        return seen().steps;
    };
    CHECK(steps_of("step", {.max_epochs = 2, .accumulate = 4}) == 6);
    CHECK(steps_of("drop", {.max_epochs = 2, .accumulate = 4, .last_window = LastWindow::drop}) ==
          4);
    CHECK(steps_of("carry", {.max_epochs = 2, .accumulate = 4, .last_window = LastWindow::carry}) ==
          5);
    CHECK(steps_of("limit", {.max_epochs = 2, .accumulate = 4, .limit_train_batches = 5}) == 4);
    CHECK(steps_of("steps", {.max_steps = 7, .accumulate = 4}) == 7);
    CHECK(steps_of("overfit", {.max_epochs = 3, .overfit_batches = 2}) == 6);
    CHECK(steps_of("short", {.max_epochs = 3, .fast_dev_run = 2}) == 2);
    const Fit<Classifier, AccumulateBy> by_epoch{{.max_epochs = 2, .batch_size = batch_size},
                                                 {{0, 1}, {1, 4}}};
    Trained<>{.directory = directory.path(), .name = "by-epoch"}.run(by_epoch);
    CHECK(seen().steps == 11 + 3);
}

namespace {

void note(const std::string& text) {
    seen().hooks.push_back(text);
}

/// The hooks of a stage; OF_STEP and OF_BATCH define one.
#define OF_STAGE(stage)                                                                            \
    OF_STEP(on_##stage##_start)                                                                    \
    OF_STEP(on_##stage##_end)                                                                      \
    OF_STEP(on_##stage##_epoch_start)                                                              \
    OF_STEP(on_##stage##_epoch_end)                                                                \
    OF_BATCH(on_##stage##_batch_start)                                                             \
    OF_BATCH(on_##stage##_batch_end)
#define OF_STEP(name)                                                                              \
    void name(Step& /*step*/) {                                                                    \
        note("module " #name);                                                                     \
    }
#define OF_BATCH(name)                                                                             \
    void name(const data::Batch& /*batch*/, Step& /*step*/) {                                      \
        note("module " #name);                                                                     \
    }
/// Logs its hooks, as the modules of tests/fixtures/fit/hook_log.py do.
struct Logging : torch::nn::Module {
    at::Tensor loss_of(const data::Batch& batch) { return net(batch["x"]).square().mean(); }
    static void note_step(const std::string& name, const Step& step) {
        note("module " + name);
        if (step.batch() == seen().fail_at) {
            throw std::runtime_error("as planned");
        }
    }
    at::Tensor training_step(const data::Batch& batch, Step& step) {
        note_step("training_step", step);
        return loss_of(batch);
    }
    void validation_step(const data::Batch& /*batch*/, Step& step) {
        note_step("validation_step", step);
        step.log("loss", 1.0);
    }
    void test_step(const data::Batch& /*batch*/, Step& step) {
        note_step("test_step", step);
        step.log("loss", 1.0);
    }
    at::Tensor predict_step(const data::Batch& batch, Step& step) {
        note_step("predict_step", step);
        return net(batch["x"]);
    }
    auto configure_optimizers(const Plan& /*plan*/) {
        return torch::optim::SGD(parameters(), 0.01);
    }
    OF_STEP(setup)
    OF_STEP(teardown)
    OF_STEP(on_fit_start)
    OF_STEP(on_fit_end)
    OF_STAGE(train)
    OF_STAGE(validation)
    OF_STAGE(test)
    OF_STAGE(predict)
    OF_STEP(on_after_backward)
    void on_before_zero_grad(torch::optim::Optimizer& /*optimizer*/, Step& /*step*/) {
        note("module on_before_zero_grad");
    }
    void on_before_backward(const at::Tensor& /*loss*/, Step& /*step*/) {
        note("module on_before_backward");
    }
    void on_before_optimizer_step(torch::optim::Optimizer& /*optimizer*/, Step& /*step*/) {
        note("module on_before_optimizer_step");
    }
    void on_save_checkpoint(StateWriter& out) {
        note("module on_save_checkpoint");
        out.value("words", 3);
    }
    void on_load_checkpoint(const StateReader& in) {
        note("module on_load_checkpoint");
        CHECK(in.value("words") == 3);
    }
    torch::nn::Linear net = register_module("net", torch::nn::Linear(1, 1));
};
#undef OF_STEP
#undef OF_BATCH

struct LoggingTwo : Logging {
    static constexpr bool automatic_optimization = false;
    void training_step(const data::Batch& batch, Step& step) {
        note("module training_step");
        step.zero_grad<0>();
        step.backward(loss_of(batch));
        step.step<0>();
        step.zero_grad<1>();
        step.backward(loss_of(batch));
        step.step<1>();
    }
    auto configure_optimizers(const Plan& /*plan*/) {
        return std::tuple(torch::optim::SGD(parameters(), 0.01),
                          torch::optim::SGD(parameters(), 0.01));
    }
};

#define OF_STEP(name)                                                                              \
    void name(Logging& /*module*/, Step& /*step*/) {                                               \
        note("callback " #name);                                                                   \
    }
#define OF_BATCH(name)                                                                             \
    void name(Logging& /*module*/, const data::Batch& /*batch*/, Step& /*step*/) {                 \
        note("callback " #name);                                                                   \
    }
struct LoggingCallback {
    OF_STEP(setup)
    OF_STEP(teardown)
    OF_STEP(on_fit_start)
    OF_STEP(on_fit_end)
    OF_STEP(on_sanity_check_start)
    OF_STEP(on_sanity_check_end)
    OF_STAGE(train)
    OF_STAGE(validation)
    OF_STAGE(test)
    OF_STAGE(predict)
    OF_STEP(on_after_backward)
    void on_before_zero_grad(Logging& /*module*/, torch::optim::Optimizer& /*optimizer*/,
                             Step& /*step*/) {
        note("callback on_before_zero_grad");
    }
    void on_before_backward(Logging& /*module*/, const at::Tensor& /*loss*/, Step& /*step*/) {
        note("callback on_before_backward");
    }
    void on_before_optimizer_step(Logging& /*module*/, torch::optim::Optimizer& /*optimizer*/,
                                  Step& /*step*/) {
        note("callback on_before_optimizer_step");
    }
    void on_save_checkpoint(Logging& /*module*/, StateWriter& /*out*/) {
        note("callback on_save_checkpoint");
    }
    void on_load_checkpoint(Logging& /*module*/, const StateReader& /*in*/) {
        note("callback on_load_checkpoint");
    }
    void on_exception(Logging& /*module*/, const std::exception& /*error*/, Step& /*step*/) {
        note("callback on_exception");
    }
};
#undef OF_STEP
#undef OF_BATCH
#undef OF_STAGE

/// Lightning's hooks in each of its trainings.
std::map<std::string, std::vector<std::string>> lightnings() {
    std::map<std::string, std::vector<std::string>> all;
    std::ifstream file(RTRAIN_FIT_DATA "/hook_log.txt");
    std::string line;
    std::string name;
    while (std::getline(file, line)) {
        if (line.starts_with("# ")) {
            name = line.substr(2);
        } else {
            all[name].push_back(line);
        }
    }
    return all;
}

} // namespace

TEST_CASE("Fit.calls_the_hooks_that_lightning_calls" * doctest::timeout(120)) {
    const test::Directory directory("fit-hooks");
    const auto expected = lightnings();
    REQUIRE(expected.size() == 13);
    const int ranks = launch::ranks().value_or(1);
    const auto ones = [&](std::int64_t rows) {
        return data::from_tensors({{"x", torch::ones({rows * ranks, 1})}});
    };
    std::optional<Checkpoint> checkpoint;
    const auto check = [&](const std::string& name, const auto& fit, stop::Conditions stop = {}) {
        CAPTURE(name);
        seen().hooks.clear();
        const std::string run = name == "accumulation_then_fit" ? "accumulation" : name;
        Trainer<> trainer({.run = {.name = run, .storage_path = directory.path(), .stop = stop},
                           .datasets = {{"train", ones(6)}, {"val", ones(2)}, {"test", ones(2)}}});
        const std::string code = code_of([&] { checkpoint = trainer.fit(fit).checkpoint; });
        CHECK(code == (seen().fail_at >= 0 ? "RT-T1" : ""));
        const auto& log = seen().hooks;
        const auto& theirs = expected.at(name);
        CHECK(log.size() == theirs.size());
        const auto [ours, other] = std::ranges::mismatch(log, theirs);
        if (ours != log.end() && other != theirs.end()) {
            FAIL_CHECK("call " << ours - log.begin() << " is " << *ours << ", but Lightning's "
                               << *other);
        }
    };
    using WithHooks = Fit<Logging, LoggingCallback>;
    seen().fail_at = -1;
    const WithHooks fit{{.max_epochs = 2, .accumulate = 4}};
    check("accumulation", fit);
    REQUIRE(checkpoint);
    const Checkpoint trained = *checkpoint;
    check("accumulation_then_validate", fit.validate(trained));
    check("accumulation_then_test", fit.test(trained));
    check("accumulation_then_predict", fit.predict(trained, [](const at::Tensor& /*all*/) {}));
    check("accumulation_then_fit", WithHooks{{.max_epochs = 3, .accumulate = 4}});
    check("validation_within_an_epoch",
          WithHooks{{.max_epochs = 1, .val_every_steps = 3, .sanity_val_batches = 0}});
    check("early_stop", WithHooks{{.max_epochs = 5, .sanity_val_batches = 0}},
          stop::EarlyStopping{.metric = "val/loss", .patience = 1});
    check("two_optimizers",
          Fit<LoggingTwo, LoggingCallback>{
              {.max_epochs = 1, .limit_train_batches = 2, .sanity_val_batches = 0}});
    check("trained",
          WithHooks{{.max_epochs = 1, .limit_train_batches = 1, .sanity_val_batches = 0}});
    seen().fail_at = 1;
    check("trained_then_validate", fit.validate(*checkpoint));
    check("trained_then_test", fit.test(*checkpoint));
    check("trained_then_predict", fit.predict(*checkpoint, [](const at::Tensor& /*all*/) {}));
    seen().fail_at = 2;
    check("exception", WithHooks{{.max_epochs = 1, .sanity_val_batches = 0}});
    seen().fail_at = -1;
}

namespace {

/// Logs the rows themselves.
struct Means : torch::nn::Module {
    at::Tensor training_step(const data::Batch& batch, Step& step) { return note_all(batch, step); }
    at::Tensor validation_step(const data::Batch& batch, Step& step) {
        return note_all(batch, step);
    }
    at::Tensor note_all(const data::Batch& batch, Step& step) {
        step.log("mean", batch["x"].mean());
        step.log("sum", batch["x"].sum(), {.reduce = metric::Reduction::sum});
        step.log("most", batch["x"].max(), {.reduce = metric::Reduction::max});
        step.log("number", 2);
        if (step.rank() == 0) {
            step.log("rank 0's", 5, {.on_step = false});
        }
        return (w * batch["x"]).mean();
    }
    auto configure_optimizers(const Plan& plan) {
        CHECK(plan.epochs() == 1);
        CHECK(plan.rows_per_step() == 2 * plan.ranks());
        return torch::optim::SGD(parameters(), 0.0);
    }
    at::Tensor w = register_parameter("w", torch::ones({1}));
};

} // namespace

TEST_CASE("Fit.logged_values_are_those_of_all_rows" * doctest::timeout(120)) {
    const test::Directory directory("fit-means");
    const int ranks = launch::ranks().value_or(1);
    // The last batch has one row, or two; there are rows to validate on for one rank, or for all.
    for (const auto& [train, val] :
         {std::pair<std::int64_t, std::int64_t>{6 * ranks, 1},
          std::pair<std::int64_t, std::int64_t>{5 * ranks, 5 * ranks + 1}}) {
        CAPTURE(val);
        const auto rows = [](std::int64_t count) {
            return data::from_tensors({{"x", torch::arange(1, count + 1).to(torch::kFloat)}});
        };
        Trainer<> trainer({.run = {.name = std::to_string(val), .storage_path = directory.path()},
                           .datasets = {{"train", rows(train)}, {"val", rows(val)}}});
        const Result result = trainer.fit(Fit<Means>{{.batch_size = 2}});
        const auto n = static_cast<double>(train);
        CHECK(result.metric("mean") == doctest::Approx((n + 1) / 2));
        CHECK(result.metric("loss") == doctest::Approx((n + 1) / 2));
        CHECK(result.metric("sum") == n * (n + 1) / 2);
        CHECK(result.metric("most") == n);
        CHECK(result.metric("number") == 2);
        CHECK(result.metric("rank 0's") == 5);
        const auto m = static_cast<double>(val);
        CHECK(result.metric("val/mean") == doctest::Approx((m + 1) / 2));
        CHECK(result.metric("val/loss") == doctest::Approx((m + 1) / 2));
        CHECK(result.metric("val/sum") == m * (m + 1) / 2);
        CHECK(result.metric("val/rank 0's") == 5);
        CHECK(result.metric("steps") == 3);
    }
}

TEST_CASE("Fit.evaluates_checkpoints" * doctest::timeout(120)) {
    const test::Directory directory("fit-evaluate");
    const Fit<Classifier, Ema> fit{{.max_epochs = 2, .batch_size = batch_size, .seed = 5}};
    Trained<> training{.directory = directory.path()};
    const Result trained = training.run(fit);
    REQUIRE(trained.checkpoint);
    training.name = "validate";
    CHECK(training.run(fit.validate(*trained.checkpoint)).metric("val/loss") > 0);
    training.name = "test";
    const double loss = training.run(fit.test(*trained.checkpoint)).metric("test/loss");
    training.name = "predict";
    torch::Tensor predictions;
    training.run(fit.predict(*trained.checkpoint,
                             [&](const at::Tensor& all) { predictions = all.clone(); }));
    if (predictions.defined()) { // on rank 0
        REQUIRE(predictions.size(0) == 7);
        const auto rows = test::fashion_mnist(7).rows(torch::arange(7));
        CHECK(torch::cross_entropy_loss(predictions, rows["label"]).item<double>() ==
              doctest::Approx(loss));
    }
}

namespace {

template <class M, class... Callbacks>
std::string failure(const std::string& name, FitOptions options, bool validates = true,
                    Callbacks... callbacks) {
    const test::Directory directory("fit-bad");
    options.batch_size = batch_size;
    try {
        Trained<>{.directory = directory.path(), .name = name, .validates = validates}.run(
            Fit<M, Callbacks...>{options, callbacks...});
    } catch (const TrainingFailedError& error) {
        return error.what();
    }
    return "";
}

/// Returns what `Of` computes from a good loss.
template <class Of>
struct Wrong : Classifier {
    using Classifier::Classifier;
    at::Tensor training_step(const data::Batch& batch, Step& step) {
        return Of::of(loss_of(batch), step);
    }
    auto configure_optimizers(const Plan& plan) { return Of::optimizers(*this, plan); }
};
struct Good {
    static at::Tensor of(const at::Tensor& loss, Step& /*step*/) { return loss; }
    static auto optimizers(torch::nn::Module& module, const Plan& /*plan*/) {
        return torch::optim::SGD(module.parameters(), 0.01);
    }
};
struct Undefined : Good {
    static at::Tensor of(const at::Tensor& /*loss*/, Step& /*step*/) { return {}; }
};
struct Several : Good {
    static at::Tensor of(const at::Tensor& loss, Step& /*step*/) { return loss.repeat({2}); }
};
struct NoGradient : Good {
    static at::Tensor of(const at::Tensor& loss, Step& /*step*/) { return loss.detach(); }
};
struct NotANumber : Good {
    static at::Tensor of(const at::Tensor& loss, Step& /*step*/) { return loss * NAN; }
};
struct LogsSeveral : Good {
    static at::Tensor of(const at::Tensor& loss, Step& step) {
        step.log("scores", loss.repeat({3}));
        return loss;
    }
};
struct LogsTwice : Good {
    static at::Tensor of(const at::Tensor& loss, Step& step) {
        step.log("x", 1);
        step.log("x", 1, {.reduce = metric::Reduction::sum});
        return loss;
    }
};
struct StepsItself : Good {
    static at::Tensor of(const at::Tensor& loss, Step& step) {
        step.backward(loss);
        return loss;
    }
};
struct UnknownMonitor : Good {
    static auto optimizers(torch::nn::Module& module, const Plan& /*plan*/) {
        return optimize(torch::optim::SGD(module.parameters(), 0.01), PlateauOptions{},
                        {.monitor = "val/los"});
    }
};
struct PastItsEnd : Good {
    static auto optimizers(torch::nn::Module& module, const Plan& /*plan*/) {
        return optimize(torch::optim::SGD(module.parameters(), 0.01), schedule::Cosine{.steps = 2});
    }
};
struct BadWarmup : Good {
    static auto optimizers(torch::nn::Module& module, const Plan& plan) {
        return optimize(torch::optim::SGD(module.parameters(), 0.01),
                        schedule::Warmup{static_cast<std::int64_t>(-plan.ranks())});
    }
};
struct WrongGroups : Good {
    static auto optimizers(torch::nn::Module& module, const Plan& /*plan*/) {
        return optimize(torch::optim::SGD(module.parameters(), 0.01),
                        std::vector<schedule::Any>{schedule::Constant{}, schedule::Constant{}});
    }
};
/// Trains by the same Fit within a training.
struct Nested {
    static inline std::function<void()> train;
    void on_train_start(torch::nn::Module& /*module*/, Step& /*step*/) const { train(); }
};
/// Throws on the last rank.
struct Throwing {
    void on_train_batch_end(torch::nn::Module& /*module*/, const data::Batch& /*batch*/,
                            Step& step) const {
        if (step.rank() == step.plan().ranks() - 1) {
            throw std::runtime_error("as planned");
        }
    }
};

} // namespace

TEST_CASE("Fit.says_what_is_wrong" * doctest::timeout(300)) {
    seen().fail_at = -1;
    CHECK(contains(failure<Wrong<Undefined>>("undefined", {}), "an undefined tensor"));
    CHECK(contains(failure<Wrong<Several>>("several", {}), "[RT-F15]"));
    CHECK(contains(failure<Wrong<NoGradient>>("no-gradient", {}), "without a gradient"));
    CHECK(contains(failure<Wrong<NotANumber>>("nan", {}), "[RT-F16]"));
    CHECK(contains(failure<Wrong<LogsSeveral>>("log", {}), "[RT-F14]"));
    CHECK(contains(failure<Wrong<LogsTwice>>("twice", {}), "[RT-V46]"));
    CHECK(contains(failure<Wrong<StepsItself>>("steps", {}), "[RT-F17]"));
    const std::string monitor = failure<Wrong<UnknownMonitor>>("monitor", {});
    CHECK(contains(monitor, "[RT-F12]"));
    CHECK(contains(monitor, "\"val/loss\""));
    CHECK(contains(failure<Wrong<PastItsEnd>>("end", {}), "[RT-C81]"));
    CHECK(contains(failure<Wrong<BadWarmup>>("warmup", {}), "[RT-C80]"));
    CHECK(contains(failure<Wrong<WrongGroups>>("groups", {}), "[RT-C82]"));
    CHECK(contains(failure<Classifier>("accumulate", {.accumulate = 0}), "[RT-F11]"));
    CHECK(
        contains(failure<Classifier>("steps-without", {.val_every_steps = 2}, false), "[RT-F13]"));
    CHECK(contains(failure<Classifier>("limit", {.limit_train_batches = 12}), "[RT-F10]"));
    CHECK(contains(failure<Classifier>("clip", {.clip_norm = -1}), "[RT-F10]"));
    CHECK(contains(failure<LoggingTwo>("manual", {.accumulate = 2}), "[RT-F11]"));
    CHECK(contains(failure<Classifier>("carry", {.accumulate = 2,
                                                 .last_window = LastWindow::carry,
                                                 .prepare = ShardedOptions{}}),
                   "[RT-F11]"));
    CHECK(contains(failure<Classifier>("freeze", {}, true, Freeze{.parameters = "backbone"}),
                   "[RT-F18]"));
    CHECK(contains(failure<Classifier>("throwing", {}, true, Throwing{}), "as planned"));
    if (launch::ranks().value_or(1) > 1) {
        const DataParallelOptions order{.reduction_order = ReductionOrder::micro_batches};
        CHECK(contains(failure<Classifier>("divide", {.accumulate = 1, .prepare = order}),
                       "[RT-F11]"));
    }
    CHECK(code_of([] { (void)Plan({}, 1, std::nullopt, [](int) { return 1; }).steps(); }) ==
          "RT-F20");
}

TEST_CASE("Fit.serves_trainers_one_after_the_other" * doctest::timeout(60)) {
    const test::Directory directory("fit-twice");
    const Fit<Classifier, Nested> fit{{.batch_size = batch_size, .seed = 5}, {}};
    Trained<> training{.directory = directory.path()};
    Nested::train = [] {};
    training.run(fit);
    const torch::Tensor weights = seen().weights;
    training.name = "second";
    training.run(fit);
    CHECK(seen().weights.equal(weights));
    training.name = "outer";
    std::string inner;
    Nested::train = [&] {
        Trained<> other{.directory = directory.path(), .name = "inner"};
        inner = code_of([&] { other.run(fit); });
    };
    training.run(fit);
    CHECK(inner == "RT-C23");
}

namespace {

/// Notes whether libtorch looks for anomalies, which makes each operator slow.
struct Noting : Classifier {
    using Classifier::Classifier;
    at::Tensor training_step(const data::Batch& batch, Step& step) {
        looks = torch::autograd::AnomalyMode::is_enabled();
        return Classifier::training_step(batch, step);
    }
    static inline bool looks = false;
};

} // namespace

TEST_CASE("Fit.looks_for_anomalies_only_if_asked" * doctest::timeout(60)) {
    const test::Directory directory("fit-anomalies");
    for (const bool is_asked : {false, true}) {
        const Trained<> training{.directory = directory.path(), .name = is_asked ? "asked" : "not"};
        (void)training.run(
            Fit<Noting>{{.max_epochs = 1, .batch_size = batch_size, .detect_anomaly = is_asked}});
        CHECK(Noting::looks == is_asked);
    }
}

TEST_CASE("Fit.repeats_rows_so_that_each_rank_has_one" * doctest::timeout(60)) {
    const test::Directory directory("fit-row");
    Trainer<> trainer({.config = {{"lr", 0.05}},
                       .run = {.name = "row", .storage_path = directory.path()},
                       .datasets = {{"train", test::fashion_mnist(1)}}});
    seen().steps = 0;
    const Result result = trainer.fit(Fit<Plain>{{.batch_size = batch_size}});
    CHECK(seen().steps == 1);
    CHECK(result.metric("loss") > 0);
}

TEST_CASE("Metric.growing_collections_exchange_names_only_if_they_differ") {
    test::Ranks ranks;
    const bool is_last = ranks.rank() == ranks.size() - 1;
    metric::GrowingCollection all;
    for (int round = 0; round < 2; ++round) {
        all.update("loss", ranks.rank(), 1.0 + ranks.rank());
        if (is_last) {
            all.update("last", 7, 1, metric::Reduction::sum);
        }
        const auto values = all.reduce(*ranks.any());
        double sum = 0;
        double weights = 0;
        for (int rank = 0; rank < ranks.size(); ++rank) {
            sum += rank * (1.0 + rank);
            weights += 1.0 + rank;
        }
        CHECK(values.at("loss").as_double() == doctest::Approx(sum / weights));
        CHECK(values.at("last") == 7.0);
    }
    CHECK(code_of([&] { all.update("last", 1); }) == "RT-V46");
    CHECK(code_of([&] { all.update("", 1); }) == "RT-V46");
}

} // namespace fit_test
