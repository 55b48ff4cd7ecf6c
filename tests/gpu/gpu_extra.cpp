// SPDX-License-Identifier: Apache-2.0
// Checks that the tests of backend::Nccl do not have; a JSON line each. mpirun -n 1 or -n 2, all on
// one GPU.
#include "models.hpp"
#include "support/mixed_precision.hpp"

#ifdef EXTRA_ON_CPU // what can be tried of this program where there is no GPU
#include <rtrain/backend/mpi.hpp>
#else
#include <rtrain/backend/nccl.hpp>
#endif
#include <rtrain/checkpoint/policy/host_copy.hpp>
#include <rtrain/comm/world/mpi.hpp>
#include <rtrain/model/parameters/parameter_check.hpp>
#include <rtrain/trainer.hpp>

#include <torch/cuda.h>
#include <torch/torch.h>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {
using namespace rtrain;
using Clock = std::chrono::steady_clock;
#ifdef EXTRA_ON_CPU
using Ranks = backend::Mpi;
const at::Device first_device(at::kCPU);
Ranks ranks_of_run() {
    return {};
}
void sync() {}
double mib_of(const char* /*what*/) {
    return 0;
}
#else
using Ranks = backend::Nccl;
const at::Device first_device(at::kCUDA, 0);
Ranks ranks_of_run() {
    return Ranks({.timeout = std::chrono::seconds(20)});
}
void sync() {
    torch::cuda::synchronize();
}
double mib_of(const char* what) {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    const auto bytes = std::string(what) == "peak" ? stats.allocated_bytes[0].peak
                                                   : stats.reserved_bytes[0].current;
    return static_cast<double>(bytes) / (1 << 20);
}
#endif
using GpuTrainer = Trainer<Ranks>;
using Worker = GpuTrainer::WorkerType;
int mpi_rank = 0, mpi_size = 1, failures = 0;

double since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}
void require(bool holds, const std::string& what) {
    if (!holds) {
        throw std::runtime_error(what);
    }
}
std::filesystem::path scratch() { // shared by the ranks
    const char* const given = std::getenv("GPU_SCRATCH");
    return given != nullptr ? given : std::filesystem::temp_directory_path() / "rtrain-gpu-extra";
}
TrainerOptions options(const std::string& name) {
    return {.scaling = {.gpus_per_worker = 1.0 / mpi_size},
            .run = {.name = name, .storage_path = scratch(), .console = {.verbose = 0}}};
}
void fit(const std::string& name, const std::function<void(Worker&)>& function,
         data::Datasets datasets = {}) {
    TrainerOptions given = options(name);
    given.datasets = std::move(datasets);
    GpuTrainer trainer(std::move(given), ranks_of_run());
    (void)trainer.fit([&](Worker& worker) { function(worker); });
}

void check(const std::string& name, const std::function<std::string()>& function) {
    const auto begin = Clock::now();
    std::string note;
    bool ok = true;
    try {
        note = function();
    } catch (const std::exception& error) {
        ok = false;
        note = error.what();
        ++failures;
    }
    for (char& c : note) {
        c = c == '"' || c == '\\' || c == '\n' || c == '\t' ? ' ' : c;
    }
    if (mpi_rank == 0 || !ok) {
        std::printf("{\"check\": \"%s\", \"ranks\": %d, \"rank\": %d, \"ok\": %s, \"s\": %.2f, "
                    "\"note\": \"%.600s\"}\n",
                    name.c_str(), mpi_size, mpi_rank, ok ? "true" : "false", since(begin),
                    note.c_str());
        std::fflush(stdout);
    }
}
std::string text(const char* format, auto... values) {
    char buffer[512];
    std::snprintf(buffer, sizeof buffer, format, values...);
    return buffer;
}

struct NetImpl : torch::nn::Module {
    explicit NetImpl(double dropout = 0) {
        in = register_module("in", torch::nn::Linear(64, 256));
        out = register_module("out", torch::nn::Linear(256, 8));
        drop = register_module("drop", torch::nn::Dropout(dropout));
    }
    at::Tensor forward(const at::Tensor& x) {
        auto y = in(x);
        computed_in = y.scalar_type();
        return out(drop(torch::gelu(y)));
    }
    at::ScalarType computed_in = at::kFloat;
    torch::nn::Linear in{nullptr}, out{nullptr};
    torch::nn::Dropout drop{nullptr};
};
TORCH_MODULE(Net);
at::Tensor flat(const torch::nn::Module& module) {
    std::vector<at::Tensor> all;
    for (const auto& p : module.parameters()) {
        all.push_back(p.detach().flatten().to(at::kCPU, at::kDouble));
    }
    return torch::cat(all);
}
double difference(const at::Tensor& a, const at::Tensor& b) {
    return ((a - b).norm() / b.norm()).item<double>();
}

template <class O, class Options>
double fused_against_plain(Worker& worker, const Options& how) {
    torch::manual_seed(3);
    Net there, here;
    {
        torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < here->parameters().size(); ++i) {
            here->parameters()[i].copy_(there->parameters()[i]);
        }
    }
    there->to(worker.device());
    auto fused = worker.prepare(O(there->parameters(), how));
    O plain(here->parameters(), how);
    for (int step = 0; step < 10; ++step) {
        for (std::size_t i = 0; i < here->parameters().size(); ++i) {
            const auto gradient = torch::randn_like(here->parameters()[i]);
            here->parameters()[i].mutable_grad() = gradient;
            there->parameters()[i].mutable_grad() = gradient.to(worker.device());
        }
        fused.step();
        plain.step();
    }
    return difference(flat(*there), flat(*here));
}

std::string fused_optimizers() {
    double sgd = 1, adam = 1, adamw = 1;
    fit("fused", [&](Worker& worker) {
        using namespace torch::optim;
        sgd = fused_against_plain<SGD>(worker, SGDOptions(0.1).momentum(0.9).nesterov(true));
        adam = fused_against_plain<Adam>(worker, AdamOptions(1e-2).amsgrad(true));
        adamw = fused_against_plain<AdamW>(worker, AdamWOptions(1e-2).weight_decay(0.1));
    });
    const auto note = text("relative difference sgd %.1e adam %.1e adamw %.1e", sgd, adam, adamw);
    require(sgd < 1e-5 && adam < 1e-4 && adamw < 1e-4, note);
    return note;
}

std::string autocast_and_scaler() {
    std::string note;
    fit("amp", [&](Worker& worker) {
        for (const auto type : {at::kBFloat16, at::kHalf}) {
            torch::manual_seed(1);
            Net net;
            auto model = worker.prepare(net, DataParallelOptions{.autocast = type});
            torch::optim::SGD optimizer(model->parameters(), 0.01);
            GradScaler scaler({.init_scale = 1024, .growth_interval = 2});
            const auto x = torch::randn({32, 64}).to(worker.device());
            for (int step = 0; step < 4; ++step) {
                optimizer.zero_grad();
                auto out = model(x);
                require(out.scalar_type() == at::kFloat, "the output is not float32");
                require(net->computed_in == type, "forward did not compute under autocast");
                auto loss = out.square().mean();
                // One rank overflows in the third step: all must leave it out.
                const bool bad = step == 2 && worker.rank() == worker.size() - 1;
                scaler.scale(bad ? loss * std::numeric_limits<float>::infinity() : loss).backward();
                const auto before = flat(*net);
                const bool stepped = scaler.step(optimizer);
                scaler.update();
                require(stepped == (step != 2), "an overflow was not left out, or a step was");
                require(flat(*net).equal(before) == !stepped,
                        "parameters differ from what was told");
            }
            require(scaler.current_scale() == 1024, // up after 2, down at the third
                    text("the scale is %g", scaler.current_scale()));
        }
    });
    return "bf16 and fp16 forward, scale grew and shrank, overflow of one rank skipped by all";
}

/// GPU_MIXED_PRECISION: what Python has printed on this device, see ../mixed_precision.hpp.
std::string mixed_precision_as_in_python() {
    const char* const table = std::getenv("GPU_MIXED_PRECISION");
    double most = 0;
    fit("mixed", [&](Worker& worker) {
        for (const auto& [type, name] : test::mixed_precision::types) {
            const auto train = [&, type = type] {
                return test::mixed_precision::figures_of(
                    type, worker.device(),
                    [&](const auto& net, const auto& how) { return worker.prepare(net, how); });
            };
            const auto figures = train();
            require(test::mixed_precision::same_bits(train(), figures),
                    text("two runs in %s differ", name));
            if (table != nullptr) {
                const double d = test::mixed_precision::difference_from(table, name, figures);
                require(d < 1e-6, text("%s differs by %.1e from Python", name, d));
                most = std::max(most, d);
            }
        }
    });
    return text("two runs have the same bits; %s: relative difference %.1e",
                table == nullptr ? "not compared with Python" : "Python", most);
}

/// Rows must arrive whole while the device is busy and memory is used again at once.
std::string batches_while_the_device_is_busy() {
    const std::int64_t rows = 4096, columns = 4096;
    const auto x =
        torch::arange(rows, at::kFloat).view({rows, 1}).expand({rows, columns}).contiguous();
    double rate = 0;
    for (const bool pinned : {false, true}) {
        std::int64_t wrong = 0, seen = 0;
        fit(pinned ? "busy-pinned" : "busy",
            [&](Worker& worker) {
                const std::int64_t wide = first_device.is_cpu() ? 64 : 4096;
                const auto a = torch::randn({wide, wide}).to(worker.device());
                at::Tensor work = a;
                at::Tensor bad =
                    torch::zeros({1}, at::TensorOptions(worker.device()).dtype(at::kLong));
                auto batches = worker.dataset_shard("train").batches({.size = 128,
                                                                      .shuffle = true,
                                                                      .threads = pinned ? 2 : 0,
                                                                      .pin_memory = pinned});
                const auto begin = Clock::now();
                for (int epoch = 0; epoch < 3; ++epoch) {
                    for (auto& batch : batches) {
                        work = at::mm(work, a) * 1e-3; // slow, before the batch is looked at
                        const auto& got = batch["x"];
                        bad += (got.amax(1) != got.amin(1)).sum();
                        seen += got.size(0);
                        for (int i = 0; i < 3; ++i) { // takes memory that is free at once
                            (void)torch::full({128, columns}, -7.0, got.options());
                        }
                    }
                }
                sync();
                rate = 3.0 * static_cast<double>(rows / worker.size() * columns) * 4 /
                       since(begin) / 1e9;
                wrong = bad.item<std::int64_t>();
            },
            {{"train", data::from_tensors({{"x", x}})}});
        require(wrong == 0,
                text("%lld rows of %lld are mixed up", (long long)wrong, (long long)seen));
    }
    return text("%.2f GB/s to the device", rate);
}

std::string resumes_to_the_same_bits() {
    const auto run = [](const std::string& name, int to, at::Tensor& weights) {
        fit(name,
            [&, to](Worker& worker) {
                worker.enable_reproducibility(5);
                Net net(0.3);
                auto model = worker.prepare(net);
                auto optimizer = worker.prepare(torch::optim::AdamW(model->parameters(), 1e-2));
                auto state = State{}.add("model", model).add("optimizer", optimizer);
                auto batches = worker.dataset_shard("train").batches({.size = 32, .shuffle = true});
                for (int epoch : worker.epochs(to, state)) {
                    for (auto& batch : batches) {
                        optimizer.zero_grad();
                        torch::cross_entropy_loss(model(batch["x"]), batch["y"]).backward();
                        optimizer.step();
                    }
                    worker.report({{"epoch", epoch}}, state);
                }
                weights = flat(*net);
            },
            {{"train",
              data::from_tensors({{"x", torch::arange(64 * 256, at::kFloat).view({256, 64}).sin()},
                                  {"y", torch::arange(256, at::kLong) % 8}})}});
    };
    at::Tensor once, first, second;
    run("once", 4, once);
    run("twice", 2, first);
    run("twice", 4, second);
    at::globalContext().setDeterministicAlgorithms(false, false);
    at::globalContext().setDeterministicCuDNN(false);
    require(!first.equal(once), "training did nothing");
    require(second.equal(once), text("a resumed run differs by %.1e", difference(second, once)));
    return "4 epochs at once and 2 + 2 have the same bits, with dropout on the device";
}

#ifndef EXTRA_ON_CPU
/// Forward, backward and step on a stream of the user's own.
std::string trains_on_another_stream() {
    at::Tensor weights[2];
    fit("streams", [&](Worker& worker) {
        for (int own = 0; own < 2; ++own) {
            c10::OptionalStreamGuard guard;
            if (own == 1) {
                guard.reset_stream(
                    c10::cuda::getStreamFromPool(false, worker.device().index()).unwrap());
            }
            torch::manual_seed(4);
            Net net;
            auto model = worker.prepare(
                net, DataParallelOptions{.bucket_bytes = 4096, .first_bucket_bytes = 1024});
            auto optimizer = worker.prepare(torch::optim::Adam(model->parameters(), 1e-3));
            for (int step = 0; step < 30; ++step) {
                torch::manual_seed(100 * step + worker.rank());
                const auto x = torch::randn({64, 64}).to(worker.device());
                optimizer.zero_grad();
                model(x).square().mean().backward();
                optimizer.step();
            }
            weights[own] = flat(*net);
        }
    });
    const double d = difference(weights[1], weights[0]);
    require(d < 1e-6, text("differs by %.1e from the default stream", d));
    return text("relative difference %.1e", d);
}

#endif

std::string copies_to_the_host() {
    std::string note;
    const at::Device device = first_device;
    checkpoint::Snapshot state;
    std::vector<std::pair<std::string, at::Tensor>> all;
    for (int i = 0; i < 64; ++i) {
        all.emplace_back("t" + std::to_string(i), torch::ones({2 << 20}, device)); // 8 MiB each
    }
    checkpoint::HostCopy copy;
    double seconds = 0;
    for (int round = 0; round < 3; ++round) {
        state = {};
        for (const auto& [name, tensor] : all) {
            state.tensors.emplace(name, tensor);
        }
        sync();
        const auto begin = Clock::now();
        const auto copied = copy(state);
        seconds = since(begin);
        require(copied.tensors.begin()->second.eq(1).all().item<bool>(), "a copy is wrong");
    }
    const double gb = 64.0 * (8 << 20) / 1e9;
    const auto pinned =
        torch::empty({64, 2 << 20}, at::TensorOptions().pinned_memory(!first_device.is_cpu()));
    const auto from = torch::ones({64, 2 << 20}, device);
    pinned.copy_(from, true);
    sync();
    auto begin = Clock::now();
    pinned.copy_(from, true);
    sync();
    const double best = since(begin);
    begin = Clock::now();
    (void)rtrain::detail::checksum_of(from);
    const double sum = since(begin);
    return text(
        "537 MB: HostCopy %.1f ms (%.1f GB/s), pinned %.1f ms (%.1f GB/s), checksum_of %.1f ms",
        1e3 * seconds, gb / seconds, 1e3 * best, gb / best, 1e3 * sum);
}

std::string many_small_copies() {
    const at::Device device = first_device;
    std::string note;
    for (const auto type : {at::kByte, at::kFloat}) {
        const std::int64_t bytes = std::int64_t{256} << 20;
        const auto from =
            torch::zeros({bytes}, at::TensorOptions(device).dtype(at::kByte)).view(type);
        const auto to = torch::empty_like(from);
        std::vector<at::Tensor> a = from.chunk(128), b = to.chunk(128);
        at::_foreach_copy_(b, a);
        sync();
        const auto begin = Clock::now();
        for (int i = 0; i < 10; ++i) {
            at::_foreach_copy_(b, a);
        }
        sync();
        note += text("%s %.0f GB/s ", c10::toString(type),
                     10 * 2.0 * double(bytes) / since(begin) / 1e9);
    }
    return note + "(read and written, 128 pieces of 2 MiB)";
}

#ifndef EXTRA_ON_CPU
/// A graph is captured while the watchdog looks at events of a collective that takes long.
std::string captures_a_graph_beside_the_watchdog() {
    fit("capture", [&](Worker& worker) {
        c10::OptionalStreamGuard guard(
            c10::cuda::getStreamFromPool(false, worker.device().index()).unwrap());
        auto x = torch::ones({1 << 20}).to(worker.device());
        auto big = torch::ones({1 << 24}).to(worker.device());
        worker.all_reduce(big); // is under way for a while
        at::cuda::CUDAGraph graph;
        at::Tensor y;
        graph.capture_begin();
        for (int i = 0; i < 50; ++i) {
            y = x * 2;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        graph.capture_end();
        graph.replay();
        require(y.eq(2).all().item<bool>(), "the graph computes something else");
    });
    return "0.5 s of capture";
}

#endif

std::string synchronised_batch_norm() {
    double d = 1;
    fit("sbn", [&](Worker& worker) {
        const auto all = (torch::arange(8 * worker.size() * 6 * 5 * 5, at::kFloat) * 0.37)
                             .sin()
                             .view({8 * worker.size(), 6, 5, 5});
        const auto mine = all.narrow(0, 8 * worker.rank(), 8).to(worker.device()).requires_grad_();
        rtrain::SyncBatchNorm norm(6);
        auto model = worker.prepare(norm);
        auto out = model(mine);
        (out * out.detach().cos()).sum().backward();
        torch::nn::BatchNorm2d plain(6);
        auto whole = all.clone().requires_grad_();
        auto expected = plain(whole);
        (expected * expected.detach().cos()).sum().backward();
        d = std::max(difference(out.detach().cpu().to(at::kDouble),
                                expected.detach().narrow(0, 8 * worker.rank(), 8).to(at::kDouble)),
                     difference(mine.grad().cpu().to(at::kDouble),
                                whole.grad().narrow(0, 8 * worker.rank(), 8).to(at::kDouble)));
    });
    require(d < 1e-4, text("differs by %.1e", d));
    return text("relative difference %.1e", d);
}

std::string power_sgd() {
    double first = 0, last = 0;
    fit("powersgd", [&](Worker& worker) {
        torch::manual_seed(1);
        auto model = worker.prepare(
            Net(), DataParallelOptions{.hook = hook::PowerSgd{.rank = 2, .start_iteration = 2}});
        torch::optim::SGD optimizer(model->parameters(), 0.1);
        torch::manual_seed(worker.rank());
        const auto x = torch::randn({64, 64}).to(worker.device());
        for (int step = 0; step < 20; ++step) {
            optimizer.zero_grad();
            auto loss = (model(x) - 1).square().mean();
            loss.backward();
            optimizer.step();
            (step == 0 ? first : last) = loss.item<double>();
        }
    });
    require(last < 0.5 * first, text("loss %.3f to %.3f", first, last));
    return text("loss %.3f to %.3f", first, last);
}

std::string latency_of_a_collective() {
    std::string note;
    fit("latency", [&](Worker& worker) {
        for (const std::int64_t elements : {1000, 6'553'600}) {
            auto tensor = torch::ones({elements}).to(worker.device());
            const int times = elements < 10000 ? 200 : 5;
            for (int i = 0; i < 3; ++i) {
                worker.all_reduce(tensor);
            }
            sync();
            worker.barrier();
            const auto begin = Clock::now();
            for (int i = 0; i < times; ++i) {
                worker.all_reduce(tensor);
            }
            const double host = since(begin);
            sync();
            note += text("%lld bytes: host %.1f us, in all %.1f us a collective; ",
                         (long long)elements * 4, 1e6 * host / times, 1e6 * since(begin) / times);
        }
    });
    return note;
}

/// Each loop over batches copies on a stream; memory of one stream is not given to another.
std::string memory_of_epochs() {
    double first = 0, last = 0;
    fit("epochs",
        [&](Worker& worker) {
            auto batches = worker.dataset_shard("train").batches({.size = 64});
            at::Tensor sum = torch::zeros({}, at::TensorOptions(worker.device()));
            for (int epoch = 0; epoch < 40; ++epoch) {
                for (auto& batch : batches) {
                    sum += batch["x"].sum();
                }
                sync();
                (epoch == 1 ? first : last) = mib_of("reserved");
            }
        },
        {{"train", data::from_tensors({{"x", torch::ones({256, 1 << 18})}})}}); // 64 MiB a batch
    const auto note = text("reserved %.0f MiB after 2 epochs, %.0f after 40", first, last);
    require(last <= 1.5 * first + 64, note);
    return note;
}

/// Memory of a thousand steps does not grow.
std::string memory_stays() {
    double before = 0, after = 0, peak = 0;
    fit("memory", [&](Worker& worker) {
        auto model = worker.prepare(models::Mlp(), DataParallelOptions{.bucket_bytes = 1 << 20});
        auto optimizer = worker.prepare(torch::optim::Adam(model->parameters(), 1e-3));
        const auto x = torch::randn({64, 784}).to(worker.device());
        const auto used = [&] {
            sync();
            return mib_of("reserved");
        };
        for (int step = 0; step < 400; ++step) {
            optimizer.zero_grad();
            auto loss = model(x).square().mean();
            loss.backward();
            optimizer.step();
            worker.log({{"loss", loss.detach()}});
            before = step == 50 ? used() : before;
        }
        after = used();
        peak = mib_of("peak");
    });
    const auto note = text("reserved %.0f then %.0f MiB, peak %.0f", before, after, peak);
    require(after <= before + 2, note);
    return note;
}
} // namespace

int main(int argc, char** argv) {
    rtrain::comm::ensure_mpi();
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi_size);
#ifndef EXTRA_ON_CPU
    if (!torch::cuda::is_available()) {
        std::puts("skipped: there is no GPU");
        return 77;
    }
#endif
    const std::string only = argc > 1 ? argv[1] : "";
    const auto run = [&](const std::string& name, std::string (*function)()) {
        if (only.empty() || name.find(only) != std::string::npos) {
            check(name, function);
        }
    };
    run("fused_optimizers", fused_optimizers);
    run("autocast_and_scaler", autocast_and_scaler);
    run("mixed_precision", mixed_precision_as_in_python);
    run("batches_while_busy", batches_while_the_device_is_busy);
    run("resume_same_bits", resumes_to_the_same_bits);
#ifndef EXTRA_ON_CPU
    run("other_stream", trains_on_another_stream);
#endif
    run("memory_stays", memory_stays);
    run("memory_of_epochs", memory_of_epochs);
    if (mpi_size == 1) {
        run("host_copy", copies_to_the_host);
        run("foreach_copy", many_small_copies);
    } else {
        run("sync_batch_norm", synchronised_batch_norm);
        run("power_sgd", power_sgd);
        run("latency", latency_of_a_collective);
    }
#ifndef EXTRA_ON_CPU
    run("capture",
        captures_a_graph_beside_the_watchdog); // last: it may break the device for this process
#endif
    return failures == 0 ? 0 : 1;
}
