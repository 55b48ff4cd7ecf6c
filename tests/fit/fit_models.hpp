// SPDX-License-Identifier: Apache-2.0
/// @file
/// The classifier that tests of rtrain::Fit train, and its training.
#pragma once

#include "support/training.hpp"

#include <rtrain/fit.hpp>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace fit_test {

using namespace rtrain;

inline constexpr std::int64_t batch_size = 4;

/// What a test sees of the trainings on this rank.
struct Seen {
    torch::Tensor weights;
    std::int64_t steps = 0;
    std::vector<std::string> hooks;
    std::int64_t fail_at = -1; ///< step
};
inline Seen& seen() {
    static Seen now;
    return now;
}

/// A classifier whose parameters are the same on each construction.
struct Classifier : torch::nn::Module {
    explicit Classifier(const Config& config) : lr(config.at("lr").to_number<double>()) {
        torch::manual_seed(3);
        net = register_module("net", test::Net(0.2, true));
    }
    at::Tensor loss_of(const data::Batch& batch) {
        return torch::cross_entropy_loss(net->forward(batch["image"]), batch["label"]);
    }
    at::Tensor forward(const data::Batch& batch) { return loss_of(batch); }
    at::Tensor training_step(const data::Batch& batch, Step& step) {
        if (step.steps() == seen().fail_at) {
            throw std::runtime_error("as planned");
        }
        return loss_of(batch);
    }
    at::Tensor validation_step(const data::Batch& batch, Step& /*step*/) { return loss_of(batch); }
    at::Tensor test_step(const data::Batch& batch, Step& /*step*/) { return loss_of(batch); }
    at::Tensor predict_step(const data::Batch& batch, Step& /*step*/) {
        return net->forward(batch["image"]);
    }
    auto configure_optimizers(const Plan& plan) {
        return optimize(torch::optim::SGD(parameters(), torch::optim::SGDOptions(lr).momentum(0.9)),
                        schedule::Linear{.steps = plan.steps()});
    }
    void on_train_end(Step& step) {
        seen().weights = test::flat(*this);
        seen().steps = step.steps();
    }
    double lr;
    test::Net net{nullptr};
};

template <class Backend = backend::Mpi, class Data = data::Sharded>
struct Trained {
    std::filesystem::path directory;
    std::string name = "run";
    std::int64_t rows = 11 * batch_size; ///< on each rank
    stop::Conditions stop = {};
    bool validates = true;

    template <class F>
    Result run(const F& function) const {
        const auto ranks = std::is_same_v<Backend, backend::Mpi> ? launch::ranks().value_or(1) : 1;
        data::Datasets datasets{{"train", test::fashion_mnist(rows * ranks)},
                                {"test", test::fashion_mnist(7)}};
        if (validates) {
            datasets.emplace("val", test::fashion_mnist(9));
        }
        Trainer<Backend, Data> trainer(
            {.config = {{"lr", 0.05}},
             .scaling = {.threads_per_worker = 1},
             .run = {.name = name, .storage_path = directory, .stop = stop},
             .datasets = datasets});
        return trainer.fit(function);
    }
};

/// A model without sums over rows but the loss.
struct Plain : Classifier {
    explicit Plain(const Config& config) : Classifier(config) {
        net = replace_module("net", test::Net(0.2));
    }
};

/// Counts its calls, in checkpoints too.
struct Counter {
    int calls = 0;
    static inline int at_end = 0;
    void on_train_batch_end(Classifier& /*module*/, const data::Batch& /*batch*/, Step& /*step*/) {
        ++calls;
    }
    void on_train_end(Classifier& /*module*/, Step& /*step*/) const { at_end = calls; }
    void save(StateWriter& out) const { out.value("calls", calls); }
    void load(const StateReader& in) { calls = in.value("calls").to_number<int>(); }
};

/// For a training that each rank makes alone.
inline std::filesystem::path own_directory(const std::filesystem::path& of_all) {
    return of_all / std::to_string(launch::env_int("OMPI_COMM_WORLD_RANK").value_or(0));
}

} // namespace fit_test
