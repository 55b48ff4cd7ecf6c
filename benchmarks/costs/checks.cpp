// SPDX-License-Identifier: Apache-2.0
// What check_gradients costs: the model of the parity benchmark, trained with and without it in
// turns within one process.
//
//   mpirun -n 2 ./checks STORAGE_DIRECTORY SECONDS HIDDEN...
//   mpirun -n 2 ./checks /tmp/checks 60 512 2048
//
// For each width of the hidden layers, rank 0 prints a JSON line: medians of a step without and
// with the check in microseconds, their ratio, the median of what a step with it takes longer than
// the one beside it, and the least times, which a busy machine disturbs least. A step is forward,
// backward and SGD of 64 rows of noise, which the ranks share; they start it together, the slowest
// counts.
#include "../parity/parity.hpp"
#include "measure_each.hpp"

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

void measure(auto& worker, double seconds, std::int64_t hidden) {
    const auto with_check = [&](bool check) {
        return worker.prepare(parity::Mlp(hidden), {.check_gradients = check});
    };
    auto plain = with_check(false);
    auto checked = with_check(true);
    torch::optim::SGD plain_sgd(plain->parameters(), parity::learning_rate);
    torch::optim::SGD checked_sgd(checked->parameters(), parity::learning_rate);
    const auto rows = parity::global_batch / worker.size();
    const auto image = torch::randn({rows, 28, 28});
    const auto label = torch::randint(10, {rows}, torch::kLong);
    const auto step = [&](auto& model, auto& optimizer) {
        worker.barrier();
        const auto start = parity::Clock::now();
        optimizer.zero_grad();
        torch::cross_entropy_loss(model(image), label).backward();
        optimizer.step();
        return parity::seconds_since(start) * 1e6;
    };
    const auto both = [&](bool checked_first) {
        const double before = checked_first ? step(checked, checked_sgd) : 0;
        const double without = step(plain, plain_sgd);
        return std::pair{without, checked_first ? before : step(checked, checked_sgd)};
    };
    std::vector<double> times;
    const auto start = parity::Clock::now();
    constexpr int warm_up = 20;
    for (int i = 0;; ++i) {
        const auto [without, with] = both(i % 2 == 1);
        if (i >= warm_up) {
            times.insert(times.end(), {without, with});
        }
        const bool enough = i > warm_up && parity::seconds_since(start) > seconds;
        if (worker.all_reduce(enough ? 1.0 : 0.0, rtrain::ReduceOp::max) != 0) {
            break;
        }
    }
    auto slowest = torch::tensor(times, torch::kDouble).view({-1, 2});
    worker.all_reduce(slowest, rtrain::ReduceOp::max);
    if (worker.rank() == 0) {
        const auto median = std::get<0>(slowest.median(0));
        const auto least = std::get<0>(slowest.min(0));
        const auto longer = (slowest.select(1, 1) - slowest.select(1, 0)).median();
        std::printf("{\"hidden\": %lld, \"pairs\": %lld, \"without_us\": %.2f, \"with_us\": %.2f, "
                    "\"ratio\": %.5f, \"longer_us\": %.2f, \"least_without_us\": %.2f, "
                    "\"least_with_us\": %.2f}\n",
                    static_cast<long long>(hidden), static_cast<long long>(slowest.size(0)),
                    median[0].item<double>(), median[1].item<double>(),
                    (median[1] / median[0]).item<double>(), longer.item<double>(),
                    least[0].item<double>(), least[1].item<double>());
        std::fflush(stdout);
    }
}

} // namespace

int main(int argc, char** argv) {
    return measure_each(argc, argv, "checks", "HIDDEN",
                        [](auto& worker, double seconds, const std::string& hidden) {
                            measure(worker, seconds, std::stoll(hidden));
                        });
}
