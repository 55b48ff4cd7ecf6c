// SPDX-License-Identifier: Apache-2.0
// A training whose ranks die, and that goes on in the processes of the others; survivors.py runs
// it, started alone or under mpirun, with an MPI that has ULFM.
//
//   survivors STORAGE <bits|rows> <ranks at least> <ranks at most> <max_failures> [DEATH]...
//
// A DEATH, such as 1:5:kill or 1:5:exit, is that of a rank, as numbered at the start of the job,
// behind a step; it comes once. "bits": a step is 8 micro-batches whatever the ranks, and a hash of
// all bits is printed. "rows": a step is 7 rows of each rank. Both leave, in STORAGE:
//   rows/<epoch>-<step>-<rank>   the rows of a step
//   starts                       a line for each call of the training function: rank, size, process
//   deaths, steps                when, in seconds of a clock that all processes share
#include "support/bits.hpp"

#include <rtrain/trainer.hpp>

#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

using namespace rtrain;

constexpr int epochs = 2;
constexpr std::int64_t row_count = 500;

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

struct RankExit {
    int rank = 0; ///< at the start of the job
    int step = 0;
    bool by_signal = true;

    explicit RankExit(std::string text) {
        for (char& c : text) {
            c = c == ':' ? ' ' : c;
        }
        std::istringstream words(text);
        std::string how;
        words >> rank >> step >> how;
        by_signal = how == "kill";
    }
};

/// What a run leaves for survivors.py.
class Traces {
public:
    Traces(std::filesystem::path storage, std::vector<RankExit> deaths)
        : storage_(std::move(storage)), deaths_(std::move(deaths)) {
        std::filesystem::create_directories(storage_ / "rows");
    }

    void begin(auto& worker, int step) const {
        append("starts",
               rtrain::detail::concat(worker.rank(), ' ', worker.size(), ' ', ::getpid()));
        if (worker.rank() == 0) { // of a step that was lost
            for (const auto& entry : std::filesystem::directory_iterator(storage_ / "rows")) {
                const std::string name = entry.path().filename().string();
                if (std::stoi(name.substr(name.find('-') + 1)) > step) {
                    std::filesystem::remove(entry.path());
                }
            }
        }
        worker.barrier();
    }

    void step(auto& worker, int epoch, int step, const std::string& rows) const {
        std::ofstream(storage_ / "rows" /
                      rtrain::detail::concat(epoch, '-', step, '-', worker.rank()))
            << rows;
        if (worker.rank() == 0) {
            append("steps", rtrain::detail::concat(step, ' ', std::to_string(now_s())));
        }
    }

    void die_if_due(int step) const {
        for (const RankExit& death : deaths_) {
            const auto name = rtrain::detail::concat("death-", death.rank, '-', death.step);
            if (death.rank == launch::env_int("OMPI_COMM_WORLD_RANK") && death.step == step &&
                ::open((storage_ / name).c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0) {
                append("deaths", rtrain::detail::concat(death.rank, ' ', std::to_string(now_s())));
                death.by_signal ? static_cast<void>(::raise(SIGKILL)) : ::_exit(4);
            }
        }
    }

private:
    void append(const char* file, const std::string& line) const {
        std::ofstream(storage_ / file, std::ios::app) << line + "\n";
    }

    std::filesystem::path storage_;
    std::vector<RankExit> deaths_;
};

void train(auto& worker, const Traces& traces, bool bits) {
    worker.enable_reproducibility(5);
    auto model = worker.prepare(
        torch::nn::Sequential(torch::nn::Linear(16, 32), torch::nn::Dropout(0.2),
                              torch::nn::Linear(32, 4)),
        {.reduction_order = bits ? ReductionOrder::micro_batches : ReductionOrder::ranks});
    auto optimizer =
        worker.prepare(torch::optim::Adam(model->parameters(), torch::optim::AdamOptions(1e-2)));
    int step = 0;
    const auto state = State{}.add("model", model).add("optimizer", optimizer).add("step", step);
    auto batches = worker.dataset_shard("train").batches(
        {.size = bits ? 8 : 7, .shuffle = true, .micro_batches = bits ? 8 : 0});
    for (const int epoch : worker.epochs(epochs, state)) {
        traces.begin(worker, step);
        std::string rows;
        for (auto& batch : batches) {
            rows += test::lines_of(batch["row"]);
            const auto loss = torch::mse_loss(model(batch["x"]), batch["y"]) /
                              static_cast<double>(batches.passes());
            if (!batches.step_ends()) {
                const auto guard = model.no_sync();
                loss.backward();
                continue;
            }
            loss.backward();
            optimizer.step();
            optimizer.zero_grad();
            traces.step(worker, epoch, ++step, rows);
            rows.clear();
            worker.report({{"step", step}}, state);
            traces.die_if_due(step);
        }
    }
    if (worker.rank() == 0) {
        std::uint64_t hash = 0;
        for (const auto& parameter : model->parameters()) {
            hash = test::hash_of_bits(hash, parameter);
        }
        std::printf("BITS %llx\n", static_cast<unsigned long long>(hash));
    }
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 6) {
        return 2;
    }
    const std::string storage = argv[1];
    const bool bits = std::string(argv[2]) == "bits";
    const Traces traces(storage, std::vector<RankExit>(argv + 6, argv + argc));
    const auto x = torch::sin(torch::arange(row_count * 16).view({row_count, 16}));
    Trainer<backend::Mpi, data::Permuted> trainer(
        {.scaling = {.num_workers = {std::stoi(argv[3]), std::stoi(argv[4])},
                     .threads_per_worker = 1},
         .run = {.name = "run",
                 .storage_path = storage,
                 .failure = {.max_failures = std::stoi(argv[5]),
                             .keep_survivors = true,
                             .hang = {.start_s = 20, .idle_s = 5, .busy_s = 20}},
                 .checkpoint = {.num_to_keep = 2}},
         .datasets = {{"train", data::from_tensors({{"row", torch::arange(row_count)},
                                                    {"x", x},
                                                    {"y", x.slice(1, 0, 4) * 2}})}}});
    try {
        const Result result = trainer.fit([&](auto& worker) { train(worker, traces, bits); });
        std::printf("RESULT %zu\n", result.metrics_history.size());
    } catch (const Error& error) {
        std::printf("ERROR %s\n", error.what());
        return EXIT_FAILURE;
    }
}
