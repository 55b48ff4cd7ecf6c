// SPDX-License-Identifier: Apache-2.0
// What a rank of a node needs to train a model with AdamW: time of a step, and memory (Pss, which
// counts what processes share once).
//
//   mpirun -n 2 ./sharded MODE MODEL WIDTH LAYERS BATCH STEPS [DIRECTORY]
//   mpirun -n 2 ./sharded sharded mlp 2048 6 64 20
//   mpirun -n 2 ./sharded sharded gpt 512 8 4 20
//   mpirun -n 2 ./sharded disk mlp 2048 6 64 20 /scratch
//
// MODEL: mlp, linear layers; gpt, blocks of causal attention, of BATCH sequences of 128 vectors.
// MODE: dataparallel, sharded, stepping (step_in_backward); followed by -autocast, in bfloat16;
// dataparallel-separate, without steps of the node;
// bfloat16, that is sharded-autocast with weights in it; gradients, that is Shard::gradients,
// which differs on nodes that tests/nodes/nodes.py plays. `operators`: what gathering on use adds
// to an operator. `disk`: what a step costs with moments in a file of DIRECTORY, and the disk
// alone, step by step in turns. Rank 0 prints a JSON line. peers.py does the same with torch's
// DistributedDataParallel and fully_shard.
#include <rtrain/backend/mpi.hpp>
#include <rtrain/model/optimizer/sharded_optimizer.hpp>
#include <rtrain/model/sharded.hpp>
#include <rtrain/process/os/descriptor.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

namespace {

using rtrain::backend::Mpi;

/// KiB that /proc says this process has of `kind`.
double kib(const std::string& kind) {
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with(kind)) {
            return std::stod(line.substr(kind.size()));
        }
    }
    return 0;
}

struct Plan {
    std::string mode;
    std::string model;
    std::int64_t width, layers, batch;
    int steps;
    std::string directory;
};

struct BlockImpl : torch::nn::Module {
    explicit BlockImpl(std::int64_t width)
        : heads(width / 64), norm_in(torch::nn::LayerNormOptions({width})),
          norm_out(torch::nn::LayerNormOptions({width})), qkv(width, 3 * width), mix(width, width),
          up(width, 4 * width), down(4 * width, width) {
        register_module("norm_in", norm_in);
        register_module("qkv", qkv);
        register_module("mix", mix);
        register_module("norm_out", norm_out);
        register_module("up", up);
        register_module("down", down);
    }
    torch::Tensor forward(const torch::Tensor& x) {
        const auto split = [&](const torch::Tensor& part) {
            return part.unflatten(2, {heads, -1}).transpose(1, 2);
        };
        const auto parts = qkv(norm_in(x)).chunk(3, 2);
        const auto seen = torch::scaled_dot_product_attention(
            split(parts[0]), split(parts[1]), split(parts[2]), {}, 0.0, /*is_causal=*/true);
        const auto h = x + mix(seen.transpose(1, 2).flatten(2));
        return h + down(torch::gelu(up(norm_out(h))));
    }
    std::int64_t heads;
    torch::nn::LayerNorm norm_in, norm_out;
    torch::nn::Linear qkv, mix, up, down;
};
TORCH_MODULE(Block);

torch::nn::Sequential make_model(const Plan& plan) {
    torch::manual_seed(7);
    torch::nn::Sequential net;
    for (std::int64_t i = 0; i < plan.layers; ++i) {
        if (plan.model == "gpt") {
            net->push_back(Block(plan.width));
            continue;
        }
        net->push_back(torch::nn::Linear(plan.width, plan.width));
        if (i + 1 < plan.layers) {
            net->push_back(torch::nn::ReLU());
        }
    }
    return net;
}

double milliseconds_since(const std::chrono::steady_clock::time_point& begun) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun)
        .count();
}

/// Milliseconds of each step; `behind` runs behind each with those of the optimizer, and is not in
/// them.
template <class Model, class Optimizer>
std::vector<double> train(
    Mpi& ranks, const Plan& plan, Model& model, Optimizer& optimizer,
    const std::function<void(double)>& behind = [](double /*ms*/) {}) {
    torch::manual_seed(static_cast<std::uint64_t>(100 + ranks.rank()));
    std::vector<std::int64_t> shape{plan.batch, plan.width};
    if (plan.model == "gpt") {
        shape.insert(shape.begin() + 1, 128);
    }
    const auto x = torch::randn(shape);
    const auto y = torch::randn(shape);
    std::vector<double> times;
    for (int step = -3; step < plan.steps; ++step) {
        const auto begun = std::chrono::steady_clock::now();
        optimizer.zero_grad();
        torch::mse_loss(model(x), y).backward();
        const double until_optimizer = milliseconds_since(begun);
        optimizer.step();
        const double taken = milliseconds_since(begun);
        if (step >= 0) {
            times.push_back(taken);
            behind(taken - until_optimizer);
        }
    }
    return times;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Reads and writes as much as a rank's moments are, block by block, past the system's cache.
class DiskAlone {
public:
    DiskAlone(const std::string& directory, std::int64_t bytes)
        : file_(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600)) {
        constexpr std::int64_t portion = 2 * (4 << 20); // two moments of 4 MiB of parameters
        for (std::int64_t begin = 0; begin < bytes; begin += portion) {
            blocks_.push_back({begin, std::min(bytes - begin, portion)});
        }
        if (file_.get() < 0) {
            std::fprintf(stderr, "sharded: no O_DIRECT in %s\n", directory.c_str());
            std::exit(1);
        }
        each_block(::pwrite);
    }

    /// Milliseconds.
    [[nodiscard]] double run() {
        const auto begun = std::chrono::steady_clock::now();
        each_block(::pread);
        each_block(::pwrite);
        return milliseconds_since(begun);
    }

private:
    struct Block {
        std::int64_t begin;
        std::int64_t bytes;
    };
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };

    template <class Transfer>
    void each_block(Transfer&& transfer) {
        for (const Block& block : blocks_) {
            if (transfer(file_.get(), memory_.get(), static_cast<std::size_t>(block.bytes),
                         block.begin) != block.bytes) {
                std::perror("sharded");
                std::exit(1);
            }
        }
    }

    rtrain::process::Descriptor file_;
    std::vector<Block> blocks_;
    std::unique_ptr<void, Free> memory_{std::aligned_alloc(4096, 8 << 20)};
};

void print(Mpi& ranks, const Plan& plan, const torch::nn::Module& module,
           std::vector<double> times) {
    std::int64_t parameters = 0;
    double sum = 0;
    for (const auto& parameter : module.parameters()) {
        parameters += parameter.numel();
        sum += parameter.detach().to(torch::kDouble).abs().sum().item<double>();
    }
    ::malloc_trim(0);
    at::Tensor pss = torch::tensor({kib("Pss:")}, torch::kDouble);
    ranks.all_reduce(pss, rtrain::ReduceOp::mean);
    std::sort(times.begin(), times.end());
    if (ranks.rank() == 0) {
        std::printf("{\"mode\": \"%s\", \"model\": \"%s\", \"ranks\": %d, \"parameters\": %lld, "
                    "\"best_ms\": %.1f, "
                    "\"median_ms\": %.1f, \"pss_mb\": %.0f, \"sum\": %.9g}\n",
                    plan.mode.c_str(), plan.model.c_str(), ranks.size(),
                    static_cast<long long>(parameters), times.front(), times[times.size() / 2],
                    pss.item<double>() / 1024, sum);
    }
}

rtrain::ShardedOptions options_of(const std::string& mode) {
    const bool rounds = mode == "bfloat16";
    rtrain::ShardedOptions options{.step_in_backward = mode.starts_with("stepping")};
    if (mode == "gradients") {
        options.level = rtrain::Shard::gradients;
    }
    if (rounds) {
        options.parameter_type = torch::kBFloat16;
    }
    if (rounds || mode.ends_with("-autocast")) {
        options.data_parallel.autocast = torch::kBFloat16;
    }
    if (mode == "dataparallel-separate") {
        options.data_parallel.step_together = false;
    }
    return options;
}

/// As worker.prepare(optimizer) finds them.
template <class Model>
rtrain::detail::SharedModels models_of(const Model& model) {
    rtrain::detail::SharedModels models;
    if (auto weights = model.prepared()->weights()) {
        models.push_back(std::move(weights));
    }
    return models;
}

void run(const std::shared_ptr<Mpi>& ranks, const Plan& plan) {
    using Net = torch::nn::SequentialImpl;
    const auto any = std::make_shared<rtrain::detail::TheBackend<Mpi>>(ranks);
    const auto options = torch::optim::AdamWOptions(1e-3);
    auto net = make_model(plan);
    if (!plan.mode.starts_with("dataparallel")) {
        rtrain::ShardedParallel<Net, Mpi> model(any, net.ptr(), options_of(plan.mode));
        rtrain::FusedOptimizer<torch::optim::AdamW> optimizer(
            torch::optim::AdamW(model->parameters(), options), models_of(model));
        print(*ranks, plan, *model, train(*ranks, plan, model, optimizer));
    } else {
        rtrain::DataParallel<Net, Mpi> model(any, net.ptr(), options_of(plan.mode).data_parallel);
        rtrain::FusedOptimizer<torch::optim::AdamW> optimizer(
            torch::optim::AdamW(model->parameters(), options));
        print(*ranks, plan, *model, train(*ranks, plan, model, optimizer));
    }
}

/// Of steps with moments on the disk and in memory, and of the disk alone, medians.
void compare_disk(const std::shared_ptr<Mpi>& ranks, const Plan& plan) {
    using Net = torch::nn::SequentialImpl;
    using AdamW = torch::optim::AdamW;
    const auto any = std::make_shared<rtrain::detail::TheBackend<Mpi>>(ranks);
    std::vector<double> optimizers;
    std::vector<double> alone;
    std::int64_t bytes = 0;
    const auto times_with = [&](const rtrain::Offload& offload, bool measures) {
        rtrain::ShardedParallel<Net, Mpi> model(any, make_model(plan).ptr(), {.offload = offload});
        rtrain::FusedOptimizer<AdamW> optimizer(AdamW(model->parameters()), models_of(model));
        bytes = 0; // of the part
        for (const auto& parameter : optimizer.param_groups()[0].params()) {
            bytes += 2 * static_cast<std::int64_t>(parameter.nbytes());
        }
        std::unique_ptr<DiskAlone> disk;
        if (measures) {
            disk = std::make_unique<DiskAlone>(plan.directory, bytes / 4096 * 4096);
        }
        return median(train(*ranks, plan, model, optimizer, [&](double ms_of_optimizer) {
            if (disk) {
                optimizers.push_back(ms_of_optimizer);
                ranks->barrier();
                alone.push_back(disk->run());
                ranks->barrier();
            }
        }));
    };
    const double in_memory = times_with(rtrain::offload::None{}, false);
    const double on_disk = times_with(rtrain::offload::Disk{plan.directory}, true);
    if (ranks->rank() == 0) {
        std::printf("{\"mode\": \"disk\", \"ranks\": %d, \"mb_each_way\": %.0f, \"memory_ms\": "
                    "%.1f, \"disk_ms\": %.1f, \"optimizer_ms\": %.1f, \"alone_ms\": %.1f}\n",
                    ranks->size(), static_cast<double>(bytes) / 1e6, in_memory, on_disk,
                    median(optimizers), median(alone));
    }
}

/// Microseconds of a small operator, the best of some rounds.
double microseconds_of_operator() {
    const torch::NoGradGuard no_grad;
    constexpr int operators = 2000;
    auto x = torch::ones({8});
    double best = 1e9;
    for (int round = 0; round < 50; ++round) {
        const auto begun = std::chrono::steady_clock::now();
        for (int i = 0; i < operators; ++i) {
            x.add_(1.0);
        }
        const std::chrono::duration<double, std::micro> taken =
            std::chrono::steady_clock::now() - begun;
        best = std::min(best, taken.count() / operators);
    }
    return best;
}

/// Without and with a model whose weights are gathered, each rank with slots of its own.
void compare_operators(const std::shared_ptr<Mpi>& ranks, const Plan& plan) {
    const double bare = microseconds_of_operator();
    const rtrain::ShardedParallel<torch::nn::SequentialImpl, Mpi> model(
        std::make_shared<rtrain::detail::TheBackend<Mpi>>(ranks), make_model(plan).ptr(),
        {.share = rtrain::Share::none});
    const double seen = microseconds_of_operator();
    if (ranks->rank() == 0) {
        std::printf("{\"mode\": \"operators\", \"bare_us\": %.2f, \"seen_us\": %.2f}\n", bare,
                    seen);
    }
}

bool is_mode(const std::string& mode) {
    constexpr std::string_view modes[] = {"dataparallel",
                                          "dataparallel-autocast",
                                          "sharded",
                                          "sharded-autocast",
                                          "stepping",
                                          "stepping-autocast",
                                          "bfloat16",
                                          "gradients",
                                          "operators",
                                          "disk",
                                          "dataparallel-separate"};
    return std::find(std::begin(modes), std::end(modes), mode) != std::end(modes);
}

} // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    const std::string kind = argc > 2 ? argv[2] : "";
    if (!is_mode(mode) || (kind != "mlp" && kind != "gpt") || argc != (mode == "disk" ? 8 : 7)) {
        std::fprintf(stderr,
                     "usage: sharded MODE mlp|gpt WIDTH LAYERS BATCH STEPS\n"
                     "       sharded disk mlp|gpt WIDTH LAYERS BATCH STEPS DIRECTORY\n"
                     "MODE: dataparallel, sharded, stepping, each also with -autocast; bfloat16, "
                     "gradients, operators, dataparallel-separate\n");
        return 2;
    }
    auto ranks = std::make_shared<Mpi>();
    ranks->start({});
    const Plan plan{mode,
                    kind,
                    std::stoll(argv[3]),
                    std::stoll(argv[4]),
                    std::stoll(argv[5]),
                    std::stoi(argv[6]),
                    argc > 7 ? argv[7] : ""};
    if (mode == "disk") {
        compare_disk(ranks, plan);
    } else if (mode == "operators") {
        compare_operators(ranks, plan);
    } else {
        run(ranks, plan);
    }
    (void)ranks->finish({});
    return 0;
}
