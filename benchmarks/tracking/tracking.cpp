// SPDX-License-Identifier: Apache-2.0
// What trackers cost those who report, and what worker.log() costs.
//
//   mpirun -n 2 ./tracking_bench STORAGE_DIRECTORY REPORTS PAUSE_US none|all
//   mpirun -n 2 ./tracking_bench /tmp/tracking 20000 1000 all
//
// Rank 0 prints a JSON line: times of report() with ten metrics, which ranks begin together, behind
// PAUSE_US of computing, as steps are; times of worker.log() of one number, at its end; and how
// much memory the process has at a tenth of the reports and behind all. `all` has TensorBoard and
// JsonLines besides progress.csv, which is always there.
#include <rtrain/trainer.hpp>

#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double resident_mib() {
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    return static_cast<double>(pages) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

double quantile(std::vector<double> times, double part) {
    const auto place =
        times.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(times.size() - 1));
    std::nth_element(times.begin(), place, times.end());
    return *place;
}

rtrain::Config ten_metrics(int report) {
    rtrain::Config metrics;
    for (int i = 0; i < 10; ++i) {
        metrics["metric/" + std::to_string(i)] = 0.001 * report + i;
    }
    return metrics;
}

/// A processor that sleeps between two reports wakes up slowly; one that trains does not sleep.
void compute_for(std::chrono::microseconds time) {
    const torch::NoGradGuard no_grad;
    const at::Tensor weights = at::ones({128, 128});
    for (const auto end = Clock::now() + time; Clock::now() < end;) {
        static_cast<void>(at::mm(weights, weights));
    }
}

void measure(auto& worker, int reports, std::chrono::microseconds pause) {
    std::vector<double> times;
    double early_mib = 0;
    for (int i = 0; i < reports; ++i) {
        const auto metrics = ten_metrics(i);
        compute_for(pause);
        worker.barrier();
        const auto start = Clock::now();
        worker.report(metrics);
        times.push_back(us_since(start));
        if (i == reports / 10) {
            early_mib = resident_mib();
        }
    }
    const double late_mib = resident_mib();
    std::vector<double> log_times;
    for (int i = 0; i < 20'000; ++i) {
        const auto start = Clock::now();
        worker.log({{"loss", 0.5 * i}});
        log_times.push_back(us_since(start));
    }
    if (worker.rank() == 0) {
        std::printf("{\"reports\": %d, \"median_us\": %.1f, \"p99_us\": %.1f, \"log_median_us\": "
                    "%.3f, \"log_p99_us\": %.3f, \"early_mib\": %.1f, \"late_mib\": %.1f}\n",
                    reports, quantile(times, 0.5), quantile(times, 0.99), quantile(log_times, 0.5),
                    quantile(log_times, 0.99), early_mib, late_mib);
        std::fflush(stdout);
    }
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: tracking_bench STORAGE_DIRECTORY REPORTS PAUSE_US none|all\n");
        return EXIT_FAILURE;
    }
    try {
        const std::string which = argv[4];
        rtrain::RunConfig run{.name = which, .storage_path = argv[1]};
        if (which == "all") {
            run.trackers = {rtrain::track::TensorBoard{}, rtrain::track::JsonLines{}};
        }
        rtrain::Trainer<> trainer{{.scaling = {.num_workers = rtrain::launch::ranks().value_or(1),
                                               .threads_per_worker = 1},
                                   .run = run}};
        (void)trainer.fit([&](auto& worker) {
            measure(worker, std::atoi(argv[2]), std::chrono::microseconds(std::atoi(argv[3])));
        });
        return EXIT_SUCCESS;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tracking_bench: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
