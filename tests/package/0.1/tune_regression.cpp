// SPDX-License-Identifier: Apache-2.0
// Searches learning rate and momentum for a line through points, and stops what does badly early.
//
//   ./tune_regression
//   mpirun -n 4 ./tune_regression   # four trials at once, on as many ranks
#include <rtrain/tune/schedule/asha.hpp>
#include <rtrain/tuner.hpp>

#include <torch/torch.h>

#include <iostream>

namespace {

/// Fits y = 3 x - 2 and reports the loss of each epoch.
double fit_line(rtrain::tune::Trial& trial, const rtrain::Config& config) {
    const auto x = torch::linspace(-1, 1, 64).unsqueeze(1);
    const auto y = 3 * x - 2;
    auto weight = torch::zeros({1, 1}, torch::requires_grad());
    auto bias = torch::zeros({1}, torch::requires_grad());
    torch::optim::SGD optimizer({weight, bias},
                                torch::optim::SGDOptions(config.at("lr").to_number<double>())
                                    .momentum(config.at("momentum").to_number<double>()));
    double loss = 0;
    for (int epoch = 0; epoch < 32; ++epoch) {
        optimizer.zero_grad();
        const auto error = torch::mse_loss(x.mm(weight) + bias, y);
        error.backward();
        optimizer.step();
        loss = error.item<double>();
        if (!trial.report({{"loss", loss}})) {
            break;
        }
    }
    return loss;
}

} // namespace

int main() {
    namespace tune = rtrain::tune;
    rtrain::Tuner tuner{
        fit_line,
        rtrain::TunerOptions{
            .param_space = {{"lr", tune::loguniform(1e-4, 1)}, {"momentum", tune::uniform(0, 0.9)}},
            .tune = {.metric = "loss",
                     .mode = "min",
                     .scheduler = tune::Asha({.max_t = 32, .grace_period = 2}),
                     .num_samples = 30},
            .run = {.name = "tune-regression", .storage_path = "results"}}};
    const rtrain::ResultGrid results = tuner.fit();
    const auto& best = results.get_best_result();
    std::cout << results.size() << " trials, best loss " << best.metric("loss") << " with lr "
              << best.config.at("lr") << " and momentum " << best.config.at("momentum") << '\n';
}
