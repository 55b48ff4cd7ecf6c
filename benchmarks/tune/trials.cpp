// SPDX-License-Identifier: Apache-2.0
// What trials of a search cost besides training; trials.py compares some of it with Ray Tune.
//   trials_bench function TRIALS DIRECTORY                3 reports each, in threads
//   trials_bench trainer TRIALS RANKS used|new DIRECTORY  the same on ranks
//   trials_bench memory TRIALS DIRECTORY                  memory and CPU time of the process
//   trials_bench exploit MB memory|files|trainer|evicted DIRECTORY   a trial takes over another's
//       state: of a function, which is in memory, or is read from its file, or of a trainer, whose
//       files the page cache has or, evicted, has not
#include <rtrain/process/os/descriptor.hpp>
#include <rtrain/tune/schedule/pbt.hpp>
#include <rtrain/tuner.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>

using namespace rtrain;

namespace {

double now_s() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
}

double objective(tune::Trial& trial, const Config& config) {
    const auto x = config.at("x").to_number<double>();
    for (int step = 1; step < 3; ++step) {
        if (!trial.report({{"loss", x / step}})) {
            break;
        }
    }
    return x / 3;
}

/// When a call of a trial began, and its end, which is now.
void note(const std::filesystem::path& times, double begin) {
    char line[64];
    std::snprintf(line, sizeof line, "%.6f %.6f\n", begin, now_s());
    std::ofstream(times, std::ios::app) << line;
}

/// Takes the files of a checkpoint out of the page cache, so that they are read from the disk
/// again.
void evict(const Checkpoint& checkpoint) {
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint.path)) {
        const process::Descriptor file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
        (void)::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    }
}

/// Three reports; leaves when it began and when it ended.
struct Train {
    std::filesystem::path times;

    void operator()(auto& worker, const Config& config) const {
        const double begin = now_s();
        const auto x = config.at("x").template to_number<double>();
        for (int step = 1; step <= 3 && !worker.should_stop(); ++step) {
            worker.report({{"loss", x / step}});
        }
        if (worker.rank() == 0) {
            note(times, begin);
        }
    }
};

/// The trial that begins with x = 0 takes over the other's state and configuration, again and
/// again.
struct Exploiting {
    std::filesystem::path times;
    std::size_t bytes;
    bool evicts; ///< a trainer's trial, at its end, what the next one takes over

    double operator()(tune::Trial& trial, const Config& config) const {
        const bool is_clone = trial.state().has_value();
        const bool is_donor = !is_clone && config.at("x") == 1;
        const double begin = now_s();
        if (is_donor) {
            (void)trial.report(metrics(is_donor), std::string(bytes, 'x'));
        }
        while (trial.report(metrics(is_donor)) && goes_on()) {
        }
        if (is_clone) {
            note(times, begin);
        }
        return is_donor ? 0 : 1;
    }
    void operator()(auto& worker, const Config& config) const {
        auto weights = torch::zeros({static_cast<std::int64_t>(bytes / sizeof(float))});
        auto state = State{}.add("weights", weights);
        const bool is_clone = worker.restore(state);
        const bool is_donor = !is_clone && config.at("x") == 1;
        const double begin = now_s();
        if (is_donor) {
            worker.report(metrics(is_donor), state);
        }
        do {
            worker.report(metrics(is_donor));
        } while (goes_on() && !worker.should_stop());
        if (is_clone) {
            if (evicts) {
                evict(*worker.checkpoint());
            }
            note(times, begin);
        }
    }

private:
    static Config metrics(bool is_donor) { return {{"loss", is_donor ? 0 : 1}, {"at", now_s()}}; }
    [[nodiscard]] bool goes_on() const {
        constexpr int calls = 10;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::ifstream lines(times);
        return std::count(std::istreambuf_iterator<char>(lines), {}, '\n') < calls;
    }
};

/// Nobody knows that trials will take over each other's states.
struct PbtOverFiles : tune::Pbt {
    using Pbt::Pbt;
    std::vector<tune::Order> orders() = delete;
};

TunerOptions options(int trials, const std::filesystem::path& directory) {
    return {.param_space = {{"x", tune::uniform(0, 1)}},
            .tune = {.metric = "loss",
                     .mode = "min",
                     .num_samples = trials,
                     .max_concurrent_trials = 1},
            .run = {.name = "search", .storage_path = directory, .console = {.verbose = 0}}};
}

/// Median seconds from the end of a trial to the first step of the next.
double median_gap(const std::filesystem::path& times) {
    std::vector<double> gaps;
    std::ifstream lines(times);
    double last = 0;
    double begin = 0;
    for (double end = 0; lines >> begin >> end; last = end) {
        if (last > 0) {
            gaps.push_back(begin - last);
        }
    }
    std::sort(gaps.begin(), gaps.end());
    return gaps.empty() ? 0 : gaps[gaps.size() / 2];
}

/// Of this process, in MB: "VmRSS" now, "VmHWM" at most.
double memory_mb(const std::string& what) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with(what)) {
            return std::stod(line.substr(what.size() + 1)) / 1024;
        }
    }
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const std::filesystem::path directory = words.back();
    const int trials = std::stoi(words.at(1));
    const double before_mb = memory_mb("VmRSS");
    const double begin = now_s();
    std::filesystem::create_directories(directory);
    const auto times = std::filesystem::absolute(directory) / "times";
    if (words[0] == "exploit") {
        TunerOptions all = options(1, directory);
        all.param_space = {{"x", tune::grid_search({0, 1})}};
        all.tune.max_concurrent_trials = 2;
        all.resources_per_trial = {.cpus = 0.25};
        all.run.checkpoint.num_to_keep = 1;
        const tune::PbtOptions often{.time_attr = "at",
                                     .perturbation_interval = 1e-3,
                                     .hyperparam_mutations = {{"y", tune::uniform(0, 1)}},
                                     .quantile_fraction = 0.5};
        all.tune.scheduler = tune::Pbt(often);
        if (words.at(2) == "files") {
            all.tune.scheduler = PbtOverFiles(often);
        }
        const bool evicts = words.at(2) == "evicted";
        const Exploiting exploiting{times, static_cast<std::size_t>(trials) << 20, evicts};
        evicts || words.at(2) == "trainer"
            ? (void)Tuner{Trainer<>{TrainerOptions{}}, exploiting, all}.fit()
            : (void)Tuner{exploiting, all}.fit();
        std::printf("%.6f\n", median_gap(times));
    } else if (words[0] == "trainer") {
        TunerOptions all = options(trials, directory);
        all.tune.reuse_workers = words.at(3) == "used";
        const Trainer<> trainer{{.scaling = {.num_workers = std::stoi(words.at(2))}}};
        (void)Tuner{trainer, Train{times}, all}.fit();
        std::printf("%.6f %.6f\n", now_s() - begin, median_gap(times));
    } else {
        (void)Tuner{objective, options(trials, directory)}.fit();
        if (words[0] == "memory") {
            std::printf("%.1f %.1f %.3f\n", before_mb, memory_mb("VmHWM"),
                        static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
        } else {
            std::printf("%.6f\n", now_s() - begin);
        }
    }
}
