// SPDX-License-Identifier: Apache-2.0
// What the whole library must refuse, in one translation unit because its headers take long: each
// mistake in a function of its own, and no error elsewhere (errors.py).
#include <rtrain/creators/data.hpp>
#include <rtrain/fit.hpp>
#include <rtrain/trainer.hpp>
#include <rtrain/tuner.hpp>

#include <torch/torch.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

using rtrain::Config;

struct NoSize {
    int rank() const { return 0; }
    void all_reduce(at::Tensor&, rtrain::ReduceOp) {}
    void broadcast(at::Tensor&, int) {}
};
struct Backend : NoSize {
    int size() const { return 1; }
};
using Trainer = rtrain::Trainer<Backend>;

struct Mean {
    void reduce(rtrain::GradientBucket& bucket, rtrain::HookRanks& ranks) {
        ranks.all_reduce(bucket.gradients, rtrain::ReduceOp::sum);
    }
};
struct NoReduce {
    void reduce(int) {}
};
struct OddFinish : Backend {
    void finish(int) {}
};
struct OddRejoin : Backend {
    void rejoin(int) {}
};
struct OddStart : Backend {
    void start() {}
};
struct OddBucket : Backend {
    int allocate_bucket(int) { return 0; }
};
struct OddLocalRank : Backend {
    int local_rank() { return 0; }
};
struct OddAsync : Backend {
    int all_reduce_async(at::Tensor&, rtrain::ReduceOp) { return 0; }
};
struct OddRows : Backend {
    int reduce_scatter_async(at::Tensor&) { return 0; }
};
struct Unknown {};
struct UnknownOfTrial {};

struct Net : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& x) { return x; }
};
struct HeldImpl : Net {};
TORCH_MODULE(Held);
void takes_module(Net&) {}
void takes_holder(Held&) {}
void takes_any(torch::nn::Module&) {}

void right_calls(rtrain::Worker<>& worker, rtrain::State& state) {
    auto model = worker.prepare(Net());
    auto held = worker.prepare(Held());
    takes_module(model);
    takes_holder(held);
    takes_any(held);
    torch::save(model, "model.pt");
    torch::load(held, "model.pt");
    const auto loss = torch::ones({});
    worker.report({{"loss", loss}});
    worker.report({{"loss", loss}, {"lr", 0.1}, {"name", std::string("net")}}, state);
    const auto domain = rtrain::tune::grid_search({std::string("adam"), std::string("sgd")});
}

double right(Trainer& trainer) {
    const auto result = trainer.fit([](auto& worker, const Config& config) {
        int epoch = 0;
        auto state = rtrain::State{}.add("epoch", epoch);
        worker.report({{"lr", config.at("lr")}}, state);
    });
    const rtrain::DataParallelOptions options{.hook = rtrain::hook::Custom(Mean{})};
    return result.metric("lr") + static_cast<double>(options.hook.index());
}

// Each on a line of its own:
// clang-format off
void wrong_parameter(Trainer& trainer) {
    trainer.fit([](int) {}); // error: [RT-F1]
}
void no_parameter(Trainer& trainer) {
    trainer.fit([] {}); // error: TrainFunction not met
}
void no_function(Trainer& trainer) {
    trainer.fit(42); // error: TrainFunction not met
}
void temporary_in_state(rtrain::State& state) {
    state.add("other", 3); // error: [RT-A1]
}
void unknown_in_state(rtrain::State& state, Unknown& unknown) {
    state.add("other", unknown); // error: [RT-A2]
}
void vector_in_state(rtrain::State& state, std::vector<double>& values) {
    state.add("values", values); // error: or keep numbers in an at::Tensor [RT-A2]
}
rtrain::hook::Custom hook() {
    return rtrain::hook::Custom(NoReduce{}); // error: or the hook cannot be copied [RT-H1]
}
void undescribed_config(Trainer& trainer) {
    trainer.fit([](auto&, const Unknown&) {}); // error: [RT-C165]
}
void undescribed_config_of_a_trial(rtrain::TunerOptions options) {
    rtrain::Tuner tuner([](rtrain::tune::Trial&, const UnknownOfTrial&) { return 0.0; }, options); // error: [RT-C165]
}
int backend() {
    return sizeof(rtrain::Trainer<NoSize>); // error: Backend not met: missing member `int size() const` [RT-B3]
}
void odd_finish(rtrain::TrainerOptions options) {
    rtrain::Trainer<OddFinish> trainer(std::move(options)); // error: [RT-B6]
}
void odd_rejoin(rtrain::TrainerOptions options) {
    rtrain::Trainer<OddRejoin> trainer(std::move(options)); // error: [RT-B7]
}
void odd_start(rtrain::TrainerOptions options) {
    rtrain::Trainer<OddStart> trainer(std::move(options)); // error: [RT-B8]
}
void odd_bucket(rtrain::TrainerOptions options) {
    rtrain::Trainer<OddBucket> trainer(std::move(options)); // error: [RT-B9]
}
void odd_local_rank(rtrain::TrainerOptions options) {
    rtrain::Trainer<OddLocalRank> trainer(std::move(options)); // error: [RT-B12]
}
void no_objective(rtrain::TunerOptions options) {
    rtrain::Tuner tuner([](int) { return 0.0; }, std::move(options)); // error: [RT-U111]
}
void no_function_of_a_trial(rtrain::Trainer<> trainer, rtrain::TunerOptions options) {
    rtrain::Tuner tuner(std::move(trainer), [](int) {}, std::move(options)); // error: [RT-U113]
}
template class rtrain::detail::TheBackend<OddAsync>; // error: and `wait()` [RT-B10]
template class rtrain::detail::TheBackend<OddRows>;  // error: [RT-B11]

struct Module : torch::nn::Module {
    at::Tensor training_step(const rtrain::data::Batch& batch, rtrain::Step& /*step*/) {
        return batch["x"].mean();
    }
    auto configure_optimizers(const rtrain::Plan& /*plan*/) {
        return torch::optim::SGD(parameters(), 0.1);
    }
};
void right_fit(rtrain::Trainer<> trainer, rtrain::TunerOptions options) {
    const rtrain::Fit<Module, rtrain::Ema, rtrain::AccumulateBy> fit{
        {.max_epochs = 2}, rtrain::Ema(), {{0, 1}, {5, 4}}};
    trainer.fit(fit);
    trainer.fit(rtrain::Fit<Module>{
        {.max_epochs = 2}, [](const Config&) { return std::make_shared<Module>(); }});
    rtrain::Tuner tuner(std::move(trainer), rtrain::Fit<Module>{{.max_epochs = 2}},
                        std::move(options));
}

struct NoModule {};
struct NoStep : torch::nn::Module {
    auto configure_optimizers(const rtrain::Plan& /*plan*/) {
        return torch::optim::SGD(parameters(), 0.1);
    }
};
struct OddStep : Module {
    void training_step(const rtrain::data::Batch& batch);
};
struct NoLoss : Module {
    void training_step(const rtrain::data::Batch& batch, rtrain::Step& step);
};
struct NoOptimizers : torch::nn::Module {
    at::Tensor training_step(const rtrain::data::Batch& batch, rtrain::Step& step);
};
struct OddHook : Module {
    void on_train_epoch_end(int epoch);
};
struct OddValidation : Module {
    void validation_step(const rtrain::data::Batch& batch);
};
struct OddCallback {
    void on_train_epoch_end(rtrain::Step& step);
};
struct NoHook {
    void on_train_epoch_ends(Module& module, rtrain::Step& step);
};
struct NoDefault : Module {
    explicit NoDefault(int size);
};
struct NotDescribed {};
struct OwnConfig : Module {
    using Config = NotDescribed;
    explicit OwnConfig(const NotDescribed& hyper);
};
// clang-format off
void no_module() {
    rtrain::Fit<NoModule> fit{{.max_epochs = 2}}; // error: derive the module from torch::nn::Module [RT-F2]
}
void no_step() {
    rtrain::Fit<NoStep> fit{{.max_epochs = 2}}; // error: FitModule not met: give the module `at::Tensor training_step(const rtrain::data::Batch& batch, rtrain::Step& step)` [RT-F3]
}
void odd_step() {
    rtrain::Fit<OddStep> fit{{.max_epochs = 2}}; // error: [RT-F3]
}
void no_loss() {
    rtrain::Fit<NoLoss> fit{{.max_epochs = 2}}; // error: [RT-F3]
}
void no_optimizers() {
    rtrain::Fit<NoOptimizers> fit{{.max_epochs = 2}}; // error: [RT-F4]
}
void odd_hook() {
    rtrain::Fit<OddHook> fit{{.max_epochs = 2}}; // error: this module's `on_train_epoch_end` is not `void on_train_epoch_end(rtrain::Step& step)` [RT-F5]
}
void odd_validation() {
    rtrain::Fit<OddValidation> fit{{.max_epochs = 2}}; // error: [RT-F5]
}
void odd_fit_callback() {
    rtrain::Fit<Module, OddCallback> fit{{.max_epochs = 2}}; // error: this callback's `on_train_epoch_end` is not `void on_train_epoch_end(Module& module, rtrain::Step& step)` [RT-F6]
}
void no_hook() {
    rtrain::Fit<Module, NoHook> fit{{.max_epochs = 2}}; // error: [RT-F7]
}
void no_default() {
    rtrain::Fit<NoDefault> fit{{.max_epochs = 2}}; // error: [RT-F8]
}
void undescribed_config_of_a_module(Trainer& trainer) {
    trainer.fit(rtrain::Fit<OwnConfig>{{.max_epochs = 2}}); // error: [RT-C165]
}
void no_test_step(const rtrain::Checkpoint& best) {
    const rtrain::Fit<Module> fit{{.max_epochs = 2}};
    (void)fit.test(best); // error: [RT-F9]
}
void three_parts_of_data() {
    (void)rtrain::detail::in_two_parts(std::tuple(1, 2, 3)); // error: [RT-F42]
}
