// SPDX-License-Identifier: Apache-2.0
// Models that are sharded over GPUs: on real ones, and on the fake ones, whose NCCL fills what it
// has not brought yet with NaN.
#include "gpu/nccl_ranks.hpp"
#include "support/training.hpp"

#include <rtrain/model/optimizer/sharded_optimizer.hpp>
#include <rtrain/model/sharded.hpp>
#include <rtrain/model/sharded/weights/shared_weights.hpp>
#include <rtrain/trainer.hpp>

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

using namespace rtrain;
using test::contains;
using test::message_of;

namespace {

using ShardTrainer = Trainer<backend::Nccl, data::Sharded, checkpoint::Sharded>;
using ShardWorker = ShardTrainer::WorkerType;

/// Tied, strided, frozen and small parameters, an embedding, blocks.
struct BlocksImpl : torch::nn::Module {
    BlocksImpl() {
        torch::manual_seed(9);
        table = register_module("table", torch::nn::Embedding(13, 12));
        for (int i = 0; i < 3; ++i) {
            blocks->push_back(torch::nn::Sequential(
                torch::nn::LayerNorm(torch::nn::LayerNormOptions({12})), torch::nn::Linear(12, 400),
                torch::nn::GELU(), torch::nn::Linear(400, 12)));
        }
        register_module("blocks", blocks);
        strided = register_parameter("strided", torch::randn({12, 12}).t());
        frozen = register_parameter("frozen", torch::randn({12}), false);
        single = register_parameter("single", torch::randn({1}));
        counted = register_buffer("counted", torch::zeros({1}));
    }
    torch::Tensor forward(const torch::Tensor& ids) {
        auto x = table(ids);
        for (const auto& block : *blocks) {
            x = x + block->as<torch::nn::Sequential>()->forward(x);
        }
        return torch::matmul(torch::tanh(x.matmul(strided) + frozen + single), table->weight.t());
    }
    torch::nn::Embedding table{nullptr};
    torch::nn::ModuleList blocks;
    torch::Tensor strided, frozen, single, counted;
};

/// A pass over this rank's batch of a step.
template <class Model>
torch::Tensor loss_of(Model& model, ShardWorker& worker, int step) {
    torch::manual_seed(static_cast<std::uint64_t>(50 * step + worker.rank()));
    const auto ids = torch::randint(13, {4, 3}).to(worker.device());
    const auto next = torch::randint(13, {12}).to(worker.device());
    return torch::cross_entropy_loss(model(ids).view({12, 13}), next);
}

template <class Model, class Optimizer>
void train(Model& model, Optimizer& optimizer, ShardWorker& worker, int from, int to) {
    for (int step = from; step < to; ++step) {
        optimizer.zero_grad();
        loss_of(model, worker, step).backward();
        optimizer.step();
    }
}

/// All weights, where they are not sharded.
template <class M, class B>
torch::Tensor weights_of(const DataParallel<M, B>& model) {
    return test::flat(*model).cpu();
}
template <class M, class B>
torch::Tensor weights_of(const ShardedParallel<M, B>& model) {
    torch::Tensor all;
    model.gathered([&](M& module) { all = test::flat(module).cpu(); });
    return all;
}

/// Weights behind `train(model, worker)`, of a model that is prepared so.
template <class Options, class Train>
torch::Tensor trained(const Options& options, Train&& train) {
    const test::Directory directory("nccl-sharded");
    torch::Tensor weights;
    ShardTrainer trainer(test::options_in(directory), backend::Nccl{});
    trainer.fit([&](ShardWorker& worker) {
        auto model = worker.prepare(std::make_shared<BlocksImpl>(), options);
        train(model, worker);
        weights = weights_of(model);
    });
    return weights;
}
const auto by_adamw = [](auto& model, ShardWorker& worker) {
    auto optimizer = worker.prepare(torch::optim::AdamW(model->parameters(), 1e-2));
    train(model, optimizer, worker, 0, 6);
};

/// A device, and nothing that brings rows to it.
struct WithoutRows {
    std::shared_ptr<backend::Nccl> nccl = std::make_shared<backend::Nccl>();
    [[nodiscard]] int rank() const { return nccl->rank(); }
    [[nodiscard]] int size() const { return nccl->size(); }
    [[nodiscard]] at::Device device() const { return nccl->device(); }
    void all_reduce(at::Tensor& tensor, ReduceOp op) { nccl->all_reduce(tensor, op); }
    void broadcast(at::Tensor& tensor, int root) { nccl->broadcast(tensor, root); }
};

std::vector<ShardedOptions> all_levels() {
    std::vector<ShardedOptions> all;
    for (const Shard level : {Shard::optimizer, Shard::gradients, Shard::parameters}) {
        all.push_back({.level = level, .slot_bytes = 8192});
    }
    return all;
}

} // namespace

TEST_CASE("NcclSharded.every_level_trains_as_data_parallel_does" * doctest::timeout(240)) {
    const auto expected = trained(DataParallelOptions{}, by_adamw);
    for (ShardedOptions options : all_levels()) {
        CAPTURE(static_cast<int>(options.level));
        CHECK(trained(options, by_adamw).allclose(expected, 1e-5, 1e-6));
        if (options.level != Shard::optimizer) {
            options.step_in_backward = true;
            CHECK(trained(options, by_adamw).allclose(expected, 1e-5, 1e-6));
        }
    }
}

TEST_CASE("NcclSharded.the_host_keeps_what_optimizers_need_and_steps" * doctest::timeout(240)) {
    const auto steps = [](auto& model, ShardWorker& worker) {
        auto optimizer = worker.prepare(torch::optim::AdamW(model->parameters(), 1e-2));
        train(model, optimizer, worker, 0, 6);
        if constexpr (requires { model.edit([](BlocksImpl&) {}); }) {
            for (auto& [key, kept] : optimizer.state()) {
                const auto& moments = static_cast<torch::optim::AdamWParamState&>(*kept);
                CHECK((worker.size() == 1 || moments.exp_avg().is_cpu()));
            }
            for (auto& part : optimizer.param_groups()[0].params()) { // what is copied
                const bool is_copied = worker.size() > 1 && part.numel() > 0;
                CHECK((!is_copied || part.is_pinned()));
                CHECK((!is_copied || !part.grad().defined() || part.grad().is_pinned()));
            }
            CHECK(model->parameters()[0].device() == worker.device());
        }
    };
    const auto expected = trained(DataParallelOptions{}, steps);
    for (ShardedOptions options : all_levels()) {
        CAPTURE(static_cast<int>(options.level));
        options.offload = offload::Host{};
        CHECK(trained(options, steps).allclose(expected, 1e-5, 1e-6));
        options.step_in_backward = options.level != Shard::optimizer;
        CHECK(trained(options, steps).allclose(expected, 1e-5, 1e-6));
    }
    const auto by_adagrad = [](auto& model, ShardWorker& worker) {
        // It has state before its first step.
        auto optimizer = worker.prepare(torch::optim::Adagrad(model->parameters(), 1e-2));
        train(model, optimizer, worker, 0, 3);
    };
    CHECK(trained(ShardedOptions{.offload = offload::Host{}}, by_adagrad)
              .allclose(trained(DataParallelOptions{}, by_adagrad), 1e-5, 1e-6));
}

TEST_CASE("NcclSharded.clipping_accumulation_and_an_optimizer_without_a_fused_step" *
          doctest::timeout(240)) {
    const auto steps = [](auto& model, ShardWorker& worker) {
        auto optimizer = worker.prepare(torch::optim::RMSprop(model->parameters(), 1e-3));
        for (int step = 0; step < 4; ++step) {
            optimizer.zero_grad();
            {
                const auto no_sync = model.no_sync();
                loss_of(model, worker, 100 + step).backward();
            }
            loss_of(model, worker, step).backward();
            model.clip_grad_norm_(0.5);
            optimizer.step();
        }
    };
    const auto expected = trained(DataParallelOptions{}, steps);
    for (const ShardedOptions& options : all_levels()) {
        CAPTURE(static_cast<int>(options.level));
        CHECK(trained(options, steps).allclose(expected, 1e-4, 1e-5));
    }
}

TEST_CASE("NcclSharded.units_come_ahead_of_their_use_and_slots_are_few" * doctest::timeout(120)) {
    const auto expected = trained(DataParallelOptions{}, by_adamw);
    for (const int resident : {1, 2, 5}) {
        ShardedOptions options{.resident_units = resident};
        options.units = {"blocks.*", "table"};
        CHECK(trained(options, by_adamw).allclose(expected, 1e-5, 1e-6));
    }
    (void)trained(ShardedOptions{}, [](auto& model, ShardWorker& worker) {
        by_adamw(model, worker);
        if (worker.size() > 1) {
            CHECK(model.prepared()->weights()->gather_counts().ahead > 0);
        }
    });
}

TEST_CASE("NcclSharded.gradients_travel_in_bfloat16_and_weights_in_it" * doctest::timeout(120)) {
    const auto by_sgd = [](auto& model, ShardWorker& worker) { // no division by small numbers
        auto optimizer = worker.prepare(torch::optim::SGD(model->parameters(), 0.05));
        train(model, optimizer, worker, 0, 6);
    };
    ShardedOptions halves;
    halves.data_parallel.hook = hook::BFloat16{};
    DataParallelOptions plain;
    plain.hook = hook::BFloat16{};
    CHECK(trained(halves, by_sgd).allclose(trained(plain, by_sgd), 2e-2, 2e-2));
    plain = {};
    plain.autocast = torch::kBFloat16;
    const ShardedOptions narrow{.parameter_type = torch::kBFloat16, .data_parallel = plain};
    const auto narrowly = trained(narrow, by_sgd);
    // What reads an embedding computes in bfloat16, and 0.12 is how far autocast takes others.
    CHECK(narrowly.allclose(trained(plain, by_sgd), 0, 0.1));
    ShardedOptions whole = narrow;
    whole.level = Shard::gradients;
    CHECK(narrowly.allclose(trained(whole, by_sgd), 1e-5, 1e-6));
}

TEST_CASE("NcclSharded.a_rank_that_throws_within_a_step_ends_the_others" * doctest::timeout(120)) {
    for (const ShardedOptions& options : all_levels()) {
        const auto begun = std::chrono::steady_clock::now();
        const auto message = message_of([&] {
            (void)trained(options, [](auto& model, ShardWorker& worker) {
                auto optimizer = worker.prepare(torch::optim::AdamW(model->parameters(), 1e-2));
                train(model, optimizer, worker, 0, 2);
                auto loss = loss_of(model, worker, 2);
                if (worker.rank() == worker.size() - 1) {
                    throw std::runtime_error("no third step");
                }
                loss.backward();
                optimizer.step();
                (void)weights_of(model).sum().template item<double>();
            });
        });
        CHECK(contains(message, "no third step"));
        CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
    }
}

TEST_CASE("NcclSharded.a_checkpoint_is_that_of_data_parallel_and_resumes" * doctest::timeout(240)) {
    const auto expected = trained(DataParallelOptions{}, by_adamw);
    for (const ShardedOptions& options : all_levels()) {
        CAPTURE(static_cast<int>(options.level));
        const test::Directory directory("nccl-resume");
        const auto run = [&](const auto& how, int to) {
            torch::Tensor weights;
            ShardTrainer trainer(test::options_in(directory), backend::Nccl{});
            trainer.fit([&](ShardWorker& worker) {
                auto model = worker.prepare(std::make_shared<BlocksImpl>(), how);
                auto optimizer = worker.prepare(torch::optim::AdamW(model->parameters(), 1e-2));
                int step = 0;
                auto state =
                    State{}.add("model", model).add("optimizer", optimizer).add("step", step);
                worker.restore(state);
                train(model, optimizer, worker, step, to);
                step = to;
                worker.report({{"step", step}}, state);
                weights = weights_of(model);
            });
            return weights;
        };
        (void)run(options, 2);
        (void)run(DataParallelOptions{}, 4);
        CHECK(run(options, 6).allclose(expected, 1e-5, 1e-6));
    }
}

TEST_CASE("NcclSharded.edits_reach_all_ranks" * doctest::timeout(60)) {
    for (const ShardedOptions& options : all_levels()) {
        const auto weights = trained(options, [](auto& model, ShardWorker& worker) {
            model.edit([&](BlocksImpl& blocks) {
                blocks.single.fill_(worker.rank() == 0 ? 7 : 8); // rank 0's counts
                blocks.blocks->ptr(0)->parameters()[0].fill_(3);
            });
            model.gathered([](BlocksImpl& blocks) {
                CHECK(blocks.single.template item<float>() == 7);
                CHECK(blocks.blocks->ptr(0)->parameters()[0].eq(3).all().template item<bool>());
            });
        });
        CHECK(weights.defined());
    }
}

TEST_CASE("NcclSharded.ranks_that_use_units_in_different_orders_are_told" * doctest::timeout(60)) {
    const auto use = [](auto& model, ShardWorker& worker) {
        auto optimizer = worker.prepare(torch::optim::SGD(model->parameters(), 0.1));
        train(model, optimizer, worker, 0, 2);
        const auto x = torch::ones({2, 12}).to(worker.device());
        for (int i = 0; i < 3; ++i) { // units of one size, in another order on rank 0
            const torch::NoGradGuard no_grad;
            const int block = worker.rank() == 0 ? 2 - i : i;
            (void)(*model)
                .blocks[static_cast<std::size_t>(block)]
                ->template as<torch::nn::Sequential>()
                ->forward(x);
        }
        train(model, optimizer, worker, 2, 3);
    };
    const auto message = message_of([&] {
        (void)trained(ShardedOptions{.resident_units = 1}, [&](auto& model, ShardWorker& worker) {
            use(model, worker);
            if (worker.size() == 1) {
                throw std::runtime_error("alone: RT-M49");
            }
        });
    });
    CAPTURE(message);
    CHECK(contains(message, "RT-M49"));
}

TEST_CASE("NcclSharded.what_a_device_cannot_do_is_refused" * doctest::timeout(60)) {
    const test::Directory disk("nccl-disk");
    const auto refused = [](const ShardedOptions& options) {
        return message_of([&] {
            (void)trained(options, [](auto& model, ShardWorker& worker) {
                by_adamw(model, worker);
                if (worker.size() == 1) {
                    throw std::runtime_error("alone: RT-C12");
                }
            });
        });
    };
    CHECK(contains(refused({.offload = offload::Disk{disk.path()}}), "RT-C12"));

    auto ranks = std::make_shared<WithoutRows>();
    ranks->nccl->start(test::scaling());
    const auto code_of_preparing = [](const auto& backend) {
        return test::code_of([&] { // on the CPU
            const ShardedParallel<BlocksImpl, std::remove_cvref_t<decltype(*backend)>> model(
                rtrain::detail::any_backend(backend), std::make_shared<BlocksImpl>(), {});
        });
    };
    const bool alone = ranks->size() == 1;
    CHECK(code_of_preparing(ranks) == (alone ? "" : "RT-C41"));
    CHECK(code_of_preparing(ranks->nccl) == (alone ? "" : "RT-M40"));
    (void)ranks->nccl->finish({});
}
