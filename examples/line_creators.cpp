// SPDX-License-Identifier: Apache-2.0
// The two examples of the page on Ray's first PyTorchTrainer: creators of a line, trained epoch by
// epoch, and a search for its learning rate.
//
//   ./line_creators train
//   ./line_creators tune    # 12 trials on two ranks each
#include <rtrain/creators.hpp>
#include <rtrain/tuner.hpp>

#include <torch/torch.h>

#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>

namespace {

/// y = 2 x + 5.
rtrain::data::Dataset line(std::int64_t rows) {
    const auto x = torch::linspace(0, 1, rows).unsqueeze(1);
    return rtrain::data::from_tensors({{"x", x}, {"y", 2 * x + 5}});
}

auto creators() {
    return rtrain::CreatorOptions{
        .model_creator = [](const rtrain::Config&) { return torch::nn::Linear(1, 1); },
        .data_creator = [](const rtrain::Config&) { return std::pair(line(1000), line(400)); },
        .optimizer_creator =
            [](auto& model, const rtrain::Config& config) {
                const double lr = config.at("lr").to_number<double>();
                return std::pair(torch::nn::MSELoss(), torch::optim::SGD(model->parameters(), lr));
            },
        .config = {{"lr", 0.5}},
        .num_replicas = 2,
        .batch_size = 50,
        .run = {.name = "creators", .storage_path = "results", .resume = rtrain::Resume::never}};
}

void train_example() {
    rtrain::CreatorTrainer trainer{creators()};
    for (int epoch = 0; epoch < 10; ++epoch) {
        const rtrain::TrainStats stats = trainer.train();
        std::printf("train_loss %.4f in %lld batches\n", stats.train_loss,
                    static_cast<long long>(stats.batch_count));
    }
    std::printf("validation_loss %.5f\n", trainer.validate().validation_loss);
    trainer.save("results/line");
    const auto model = trainer.get_model();
    std::printf("y = %.2f x + %.2f\n", model->weight.item<double>(), model->bias.item<double>());
}

void tune_example() {
    rtrain::Tuner tuner{rtrain::Trainer<>{{.scaling = {.num_workers = 2}}},
                        rtrain::CreatorTrainable{creators(), /*epochs=*/2},
                        rtrain::TunerOptions{
                            .param_space = {{"lr", rtrain::tune::loguniform(1e-4, 1)}},
                            .tune = {.metric = "validation_loss", .mode = "min", .num_samples = 12},
                            .run = {.name = "creators-tune", .storage_path = "results"}}};
    const rtrain::ResultGrid results = tuner.fit();
    const auto& best = results.get_best_result();
    std::printf("best of %zu: lr %.4f, validation_loss %.5f\n", results.size(),
                best.config.at("lr").to_number<double>(), best.metric("validation_loss"));
}

} // namespace

int main(int count, char** words) {
    const std::string_view what = count > 1 ? words[1] : "train";
    what == "tune" ? tune_example() : train_example();
}
