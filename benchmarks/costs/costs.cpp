// SPDX-License-Identifier: Apache-2.0
// What gradient averaging costs, on models that compute next to nothing.
//
//   mpirun -n 2 ./costs STORAGE_DIRECTORY SECONDS PARAMETERS:TENSORS...
//   mpirun -n 2 ./costs /tmp/costs 1 1000000:10 1000000:1000
//
// For each model, rank 0 prints a JSON line: microseconds of a step of the prepared model and of
// the same model left alone, which take turns. A step is zero_grad() and a backward() that writes
// every gradient once; ranks start it together, the slowest counts. The difference is what rtrain
// adds.
#include "measure_each.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

/// A scalar whose gradient with respect to each parameter is all ones: one node of the graph,
/// however many parameters.
struct Ones : torch::autograd::Function<Ones> {
    static torch::Tensor forward(torch::autograd::AutogradContext* context,
                                 at::TensorList parameters) {
        context->saved_data["tensors"] = static_cast<std::int64_t>(parameters.size());
        context->saved_data["elements"] = parameters.front().numel();
        return torch::zeros({});
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   const torch::autograd::variable_list&) {
        torch::autograd::variable_list gradients;
        const auto tensors = context->saved_data["tensors"].toInt();
        for (std::int64_t i = 0; i < tensors; ++i) {
            gradients.push_back(torch::ones({context->saved_data["elements"].toInt()}));
        }
        return gradients;
    }
};

struct ModelImpl : torch::nn::Module {
    ModelImpl(std::int64_t parameters, std::int64_t tensors) {
        for (std::int64_t i = 0; i < tensors; ++i) {
            list.push_back(
                register_parameter("p" + std::to_string(i), torch::zeros({parameters / tensors})));
        }
    }
    torch::Tensor forward() { return Ones::apply(at::TensorList(list)); }
    torch::autograd::variable_list list; // parameters() would build it anew each step
};
TORCH_MODULE(Model);

template <class M>
double seconds_of_step(auto& worker, M& model) {
    worker.barrier();
    const auto start = Clock::now();
    model->zero_grad();
    model->forward().backward();
    return std::chrono::duration<double>(Clock::now() - start).count();
}

void measure(auto& worker, double seconds, std::int64_t parameters, std::int64_t tensors) {
    auto prepared = worker.prepare(Model(parameters, tensors));
    Model alone(parameters, tensors);
    const auto pair = [&] {
        return std::array{seconds_of_step(worker, prepared), seconds_of_step(worker, alone)};
    };
    pair();
    const auto [step, compute] = pair();
    const double slowest = worker.all_reduce(step + compute, rtrain::ReduceOp::max);
    const auto samples = static_cast<std::int64_t>(std::clamp(seconds / slowest, 5.0, 500.0));
    auto times = torch::empty({samples, 2}, torch::kDouble);
    for (std::int64_t i = 0; i < samples; ++i) {
        const auto pair_of_times = pair();
        times[i][0] = pair_of_times[0];
        times[i][1] = pair_of_times[1];
    }
    worker.all_reduce(times, rtrain::ReduceOp::max);
    if (worker.rank() == 0) {
        const auto least = std::get<0>(times.min(0)) * 1e6;
        const auto median = std::get<0>(times.median(0)) * 1e6;
        std::printf("{\"parameters\": %lld, \"tensors\": %lld, \"samples\": %lld, "
                    "\"step_least_us\": %.3f, \"step_median_us\": %.3f, "
                    "\"compute_least_us\": %.3f, \"compute_median_us\": %.3f}\n",
                    static_cast<long long>(parameters), static_cast<long long>(tensors),
                    static_cast<long long>(samples), least[0].item<double>(),
                    median[0].item<double>(), least[1].item<double>(), median[1].item<double>());
        std::fflush(stdout);
    }
}

} // namespace

int main(int argc, char** argv) {
    return measure_each(argc, argv, "costs", "PARAMETERS:TENSORS",
                        [](auto& worker, double seconds, const std::string& model) {
                            measure(worker, seconds, std::stoll(model),
                                    std::stoll(model.substr(model.find(':') + 1)));
                        });
}
