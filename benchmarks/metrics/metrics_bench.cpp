// SPDX-License-Identifier: Apache-2.0
// What ten metrics cost: a batch that they see, what all ranks have seen, and a report of it.
//
//   mpirun -n 2 ./metrics_bench STORAGE_DIRECTORY SAMPLES
//
// Rank 0 prints a JSON line for each of: "update" of the collection with a batch of 64 rows and 10
// classes; "reduce" over ranks, with compute and reset; "report" without metrics; "report of ten"
// with the collection. Ranks start together, the slowest counts; reports of both kinds take turns.
#include <rtrain/backend/the_backend.hpp>
#include <rtrain/metrics.hpp>
#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <string>

namespace {

namespace m = rtrain::metric;

/// The ten, and a batch for them.
struct Ten {
    static constexpr std::int64_t classes = 10;
    m::Accuracy accuracy{{.num_classes = classes}};
    m::Accuracy best_three{{.num_classes = classes, .top_k = 3}};
    m::Precision precision{{.num_classes = classes, .average = m::Average::macro}};
    m::Recall recall{{.num_classes = classes, .average = m::Average::macro}};
    m::F1 f1{{.num_classes = classes, .average = m::Average::macro}};
    m::AveragePrecision precisions{{.num_classes = classes, .thresholds = 50}};
    m::Auroc auroc{{.num_classes = classes, .thresholds = 50}};
    m::CalibrationError calibration{{.num_classes = classes}};
    m::Mean loss;
    m::Max longest;
    m::Collection all = m::Collection{}
                            .add("accuracy", accuracy)
                            .add("best_three", best_three)
                            .add("precision", precision)
                            .add("recall", recall)
                            .add("f1", f1)
                            .add("precisions", precisions)
                            .add("auroc", auroc)
                            .add("calibration", calibration)
                            .add("loss", loss)
                            .add("longest", longest);
    torch::Tensor scores = torch::rand({64, classes}).softmax(1);
    torch::Tensor targets = torch::randint(classes, {64}, torch::kLong);

    void see() {
        all.update(scores, targets);
        loss.update(0.5, 64);
        longest.update(0.5);
    }
};

template <class Action>
double microseconds_of(const Action& action) {
    const auto start = std::chrono::steady_clock::now();
    action();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
        .count();
}

/// Of each sample the slowest rank's time; `worker` reduces them.
void print(auto& worker, const char* what, torch::Tensor times) {
    worker.all_reduce(times, rtrain::ReduceOp::max);
    if (worker.rank() == 0) {
        const auto sorted = std::get<0>(times.sort());
        const auto at = [&](double share) {
            return sorted[static_cast<std::int64_t>(share * static_cast<double>(sorted.size(0)))]
                .item<double>();
        };
        std::printf("{\"what\": \"%s\", \"median_us\": %.2f, \"p99_us\": %.2f}\n", what, at(0.5),
                    at(0.99));
        std::fflush(stdout);
    }
}

void measure(auto& worker, rtrain::HookRanks& ranks, std::int64_t samples) {
    Ten ten;
    auto update = torch::empty({samples}, torch::kDouble);
    auto reduce = update.clone();
    auto report = update.clone();
    auto report_of_ten = update.clone();
    const auto timed = [&](const auto& action) {
        worker.barrier();
        return microseconds_of(action);
    };
    for (std::int64_t i = -10; i < samples; ++i) { // ten to warm up
        const auto sample = std::max(i, std::int64_t{0});
        update[sample] = timed([&] { ten.see(); });
        reduce[sample] = timed([&] { (void)ten.all.reduce(ranks); });
        report[sample] = timed([&] { worker.report({{"step", i}}); });
        ten.see();
        report_of_ten[sample] = timed([&] { worker.report({{"step", i}}, ten.all); });
    }
    print(worker, "update", update);
    print(worker, "reduce", reduce);
    print(worker, "report", report);
    print(worker, "report of ten", report_of_ten);
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::cerr << "usage: metrics_bench STORAGE_DIRECTORY SAMPLES" << std::endl;
        return EXIT_FAILURE;
    }
    try {
        rtrain::Trainer<> trainer{{
            .scaling = {.num_workers = rtrain::launch::ranks().value_or(1),
                        .threads_per_worker = 1},
            .run = {.storage_path = argv[1]},
        }};
        (void)trainer.fit([&](auto& worker) {
            const auto mpi = std::make_shared<rtrain::backend::Mpi>();
            mpi->start({});
            rtrain::detail::TheBackend<rtrain::backend::Mpi> ranks(mpi);
            measure(worker, ranks, std::atoll(argv[2]));
            (void)mpi->finish({});
        });
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::cerr << "metrics_bench: " << error.what() << std::endl;
        return EXIT_FAILURE;
    }
}
