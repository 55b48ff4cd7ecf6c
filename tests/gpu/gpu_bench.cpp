// SPDX-License-Identifier: Apache-2.0
// rtrain on one GPU against bare libtorch in the same program; gpu_bench.py is eager PyTorch.
//   mpirun -n 1 gpu_bench resnet50 bf16 256 40     one JSON line for each way
#include "models.hpp"

#include <rtrain/backend/local.hpp>
#include <rtrain/backend/nccl.hpp>
#include <rtrain/trainer.hpp>

#include <torch/cuda.h>
#include <torch/torch.h>

#include <c10/cuda/CUDACachingAllocator.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <unistd.h>

namespace {
using Clock = std::chrono::steady_clock;

struct Case {
    std::string model = "mlp", type = "fp32";
    std::int64_t batch = 64;
    int steps = 100;
    int rank = 0, size = 1;
};

void wait_for(at::Device device) {
    if (device.is_cuda()) {
        torch::cuda::synchronize(device.index());
    }
}
double peak_mib(at::Device device) {
    return device.is_cuda()
               ? static_cast<double>(c10::cuda::CUDACachingAllocator::getDeviceStats(device.index())
                                         .allocated_bytes[0]
                                         .peak) /
                     (1 << 20)
               : 0;
}
void forget(at::Device device) {
    if (device.is_cuda()) {
        c10::cuda::CUDACachingAllocator::emptyCache();
        c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
    }
}

/// Times `step()` after a warm-up; host: until the last step is on the stream.
template <class Step>
void timed(const Case& c, const std::string& how, at::Device device, Step&& step) {
    const int warm = std::max(5, c.steps / 4); // a captured step is recorded in its fourth call
    at::Tensor loss;
    for (int i = 0; i < warm; ++i) {
        loss = step();
    }
    wait_for(device);
    const auto begin = Clock::now();
    for (int i = 0; i < c.steps; ++i) {
        loss = step();
    }
    const auto told = Clock::now();
    wait_for(device);
    const double s = std::chrono::duration<double>(Clock::now() - begin).count();
    const double host = std::chrono::duration<double>(told - begin).count();
    if (c.rank == 0) {
        std::printf("{\"bench\": \"%s\", \"impl\": \"%s\", \"type\": \"%s\", \"batch\": %lld, "
                    "\"ranks\": %d, \"ms_step\": %.4f, \"host_ms_step\": %.4f, "
                    "\"samples_s\": %.1f, \"peak_mib\": %.0f, \"loss\": %.5f}\n",
                    c.model.c_str(), how.c_str(), c.type.c_str(), static_cast<long long>(c.batch),
                    c.size, 1e3 * s / c.steps, 1e3 * host / c.steps,
                    static_cast<double>(c.batch * c.size) * c.steps / s, peak_mib(device),
                    loss.item<double>());
        std::fflush(stdout);
    }
}

struct Inputs {
    at::Tensor x, y;
};
Inputs inputs(const Case& c, at::Device device) {
    torch::manual_seed(1 + c.rank);
    if (c.model == "resnet50") {
        auto x = torch::randn({c.batch, 3, 224, 224}).to(device);
        if (c.type == "bf16") {
            x = x.contiguous(at::MemoryFormat::ChannelsLast);
        }
        return {x, torch::randint(1000, {c.batch}).to(device)};
    }
    if (c.model == "gpt2") {
        const auto ids = torch::randint(50257, {c.batch, 1025}).to(device);
        return {ids.slice(1, 0, 1024), ids.slice(1, 1).reshape({-1})};
    }
    return {torch::randn({c.batch, 784}).to(device), torch::randint(10, {c.batch}).to(device)};
}

template <class Model, class Optimizer>
auto step_of(Model& model, Optimizer& optimizer, const Inputs& in, bool autocast_here) {
    return [&model, &optimizer, in, autocast_here] {
        optimizer.zero_grad();
        at::Tensor out;
        if (autocast_here) {
            const rtrain::Autocast cast(at::kBFloat16, in.y.device().type());
            out = model(in.x).to(at::kFloat);
        } else {
            out = model(in.x);
        }
        auto loss = torch::cross_entropy_loss(out.view({-1, out.size(-1)}), in.y);
        loss.backward();
        optimizer.step();
        return loss.detach();
    };
}

template <class Holder>
void place(Holder& model, const Case& c, at::Device device) {
    model->to(device);
    if (c.model == "resnet50" && c.type == "bf16") {
        for (auto& p : model->parameters()) {
            if (p.dim() == 4) {
                p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
            }
        }
    }
}

template <class Holder, class Optimizer, class Options>
void run(const Case& c, auto& worker, const Options& how) {
    const at::Device device = worker.device();
    const bool half = c.type == "bf16";
    const Inputs in = inputs(c, device);
    if (c.size == 1) {
        forget(device);
        torch::manual_seed(0);
        Holder model;
        place(model, c, device);
        Optimizer optimizer(model->parameters(), how);
        timed(c, "bare", device, step_of(model, optimizer, in, half));
    }
    for (const bool fused : {false, true}) {
        forget(device);
        torch::manual_seed(0);
        Holder module;
        place(module, c, device);
        rtrain::DataParallelOptions options;
        if (half) {
            options.autocast = at::kBFloat16;
        }
        auto model = worker.prepare(module, options);
        if (fused) {
            auto optimizer = worker.prepare(Optimizer(model->parameters(), how));
            timed(c, "rtrain.fused", device, step_of(model, optimizer, in, false));
            auto captured = worker.capture(step_of(model, optimizer, in, false));
            timed(c, "rtrain.captured", device, [&] { return captured(); });
        } else {
            Optimizer optimizer(model->parameters(), how);
            timed(c, "rtrain", device, step_of(model, optimizer, in, false));
        }
    }
}

/// Batches from the host: read by threads into pinned memory, copied ahead.
void run_fed(const Case& c, auto& worker) {
    const at::Device device = worker.device();
    torch::manual_seed(0);
    auto model = worker.prepare(models::Mlp());
    auto optimizer = worker.prepare(torch::optim::SGD(model->parameters(), 1e-3));
    auto batches = worker.dataset_shard("train").batches(
        {.size = c.batch, .shuffle = true, .threads = 2, .pin_memory = true});
    for (int epoch = 0; epoch < 3; ++epoch) {
        wait_for(device);
        const auto begin = Clock::now();
        std::int64_t steps = 0;
        at::Tensor loss;
        for (auto& batch : batches) {
            optimizer.zero_grad();
            loss = torch::cross_entropy_loss(model(batch["x"]), batch["y"]);
            loss.backward();
            optimizer.step();
            ++steps;
        }
        wait_for(device);
        const double s = std::chrono::duration<double>(Clock::now() - begin).count();
        if (c.rank == 0) {
            std::printf("{\"bench\": \"mlp_fed\", \"impl\": \"rtrain.fused\", \"epoch\": %d, "
                        "\"ms_step\": %.4f, \"samples_s\": %.1f, \"loss\": %.5f}\n",
                        epoch, 1e3 * s / static_cast<double>(steps),
                        static_cast<double>(steps * c.batch) / s, loss.item<double>());
            std::fflush(stdout);
        }
    }
}

void run_case(Case c, auto& worker) {
    c.rank = worker.rank();
    c.size = worker.size();
    at::globalContext().setBenchmarkCuDNN(true);
    using namespace torch::optim;
    if (c.model == "resnet50") {
        run<models::ResNet50, SGD>(c, worker, SGDOptions(0.1).momentum(0.9).weight_decay(1e-4));
    } else if (c.model == "gpt2") {
        run<models::Gpt, AdamW>(c, worker, AdamWOptions(3e-4).weight_decay(0.1));
    } else if (c.model == "mlp_fed") {
        run_fed(c, worker);
    } else {
        run<models::Mlp, SGD>(c, worker, SGDOptions(1e-3));
    }
}

template <class Backend>
void fit(const std::vector<Case>& cases, double share) {
    const auto directory = std::filesystem::temp_directory_path() / "rtrain-gpu-bench";
    torch::manual_seed(0);
    rtrain::TrainerOptions options{
        .scaling = {.gpus_per_worker = share},
        .run = {.name = "run-" +
                        std::to_string(std::chrono::system_clock::now().time_since_epoch().count() /
                                       100'000'000'000),
                .storage_path = directory,
                .console = {.verbose = 0}},
        .datasets = {{"train", rtrain::data::from_tensors({{"x", torch::randn({60'000, 784})},
                                                           {"y", torch::randint(10, {60'000})}})}}};
    rtrain::Trainer<Backend> trainer(std::move(options));
    (void)trainer.fit([&](auto& worker) {
        for (const Case& c : cases) {
            run_case(c, worker);
        }
    });
}
} // namespace

int main(int argc, char** argv) {
    std::vector<Case> cases;
    for (int i = 1; i + 3 < argc; i += 4) {
        cases.push_back({argv[i], argv[i + 1], std::atoll(argv[i + 2]), std::atoi(argv[i + 3])});
    }
    try {
        const char* const share = std::getenv("BENCH_GPU_SHARE");
        if (std::getenv("BENCH_CPU") != nullptr) {
            fit<rtrain::backend::Local>(cases, 1);
        } else {
            fit<rtrain::backend::Nccl>(cases, share ? std::atof(share) : 1);
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "gpu_bench: %s\n", error.what());
        return 1;
    }
}
