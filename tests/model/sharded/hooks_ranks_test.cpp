// SPDX-License-Identifier: Apache-2.0
// Gradients that nodes exchange in two bytes: against sums that the test makes of all ranks'
// gradients. nodes.py plays the nodes; on one, nothing is rounded.
#include "models.hpp"
#include "support/thrown.hpp"
#include "support/training.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace sharded_hooks_test {

using namespace test;

/// What a sharded model makes of one gradient: divided, added up within each node, rounded, and
/// added up between nodes in float32.
torch::Tensor mean_of_nodes(Ranks& ranks, const torch::Tensor& mine, at::ScalarType half) {
    const auto type = mine.scalar_type();
    const auto scale = torch::tensor(1.0 / ranks.size(), type);
    const torch::Tensor all = ranks.mpi->all_gather(mine.contiguous()) * scale;
    const std::vector<int> nodes = ranks_of_nodes();
    torch::Tensor mean;
    std::int64_t rank = 0;
    for (const int count : nodes) {
        torch::Tensor sum = all[rank++].clone();
        for (int other = 1; other < count; ++other) {
            sum += all[rank++];
        }
        if (nodes.size() == 1) {
            return sum;
        }
        sum = sum.to(half).to(torch::kFloat);
        mean = mean.defined() ? mean + sum : sum;
    }
    return mean.to(half).to(type);
}

/// A pass of a whole model whose gradients become what a sharded one has then.
template <class M>
void add_reference(Ranks& ranks, M& module, at::ScalarType half, const torch::Tensor& loss) {
    std::vector<torch::Tensor> before;
    for (auto& parameter : module.parameters()) {
        before.push_back(parameter.grad());
        parameter.mutable_grad().reset();
    }
    loss.backward();
    std::size_t i = 0;
    for (auto& parameter : module.parameters()) {
        const auto earlier = before[i++];
        if (parameter.grad().defined()) {
            const auto mean = mean_of_nodes(ranks, parameter.grad(), half);
            parameter.mutable_grad() = earlier.defined() ? earlier + mean : mean;
        }
    }
}

torch::Tensor loss_of(KindsImpl& /*module*/, auto& model, int rank, int step) {
    torch::manual_seed(static_cast<std::uint64_t>(50 * step + rank));
    const auto x = torch::randint(11, {4, 3});
    const auto y = torch::randint(11, {12});
    return torch::cross_entropy_loss(model(x), y);
}
torch::Tensor loss_of(MlpImpl& module, auto& model, int rank, int step) {
    const auto x = random(rank, step, {5, module.in});
    const auto y = random(rank, 100 + step, {5, module.out});
    return torch::mse_loss(model(x), y);
}

/// Trains a sharded model, and a whole one with the gradients it must have, by passes of which the
/// first `alone` of a step run under no_sync().
template <class M>
void compare_with_reference(Ranks& ranks, ShardedOptions how, int alone = 0) {
    CAPTURE(how.data_parallel.hook.index());
    CAPTURE(static_cast<int>(how.level));
    how.slot_bytes = 4096;
    const auto half = *rtrain::detail::half_type(how.data_parallel.hook);
    auto whole = std::make_shared<M>();
    auto model = shard(ranks, std::make_shared<M>(), how);
    using O = torch::optim::AdamW;
    FusedOptimizer<O> whole_optimizer(O(whole->parameters(), 1e-2), {});
    auto optimizer = prepared(O(model->parameters(), 1e-2), model);
    const auto call = [&](const torch::Tensor& x) { return whole->forward(x); };
    for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        whole_optimizer.zero_grad();
        for (int pass = 0; pass <= alone; ++pass) {
            const int number = 10 * step + pass;
            const auto backward = [&] { loss_of(*model, model, ranks.rank(), number).backward(); };
            if (pass < alone) {
                const auto held = model.no_sync();
                backward();
            } else {
                backward();
            }
            const auto loss = loss_of(*whole, call, ranks.rank(), number);
            if (how.level != Shard::optimizer) {
                add_reference(ranks, *whole, half, loss);
                continue;
            }
            loss.backward();
            if (pass == alone) { // the sums of all passes, rounded once
                for (auto& parameter : whole->parameters()) {
                    if (parameter.grad().defined()) {
                        parameter.mutable_grad() = mean_of_nodes(ranks, parameter.grad(), half);
                    }
                }
            }
        }
        optimizer.step();
        whole_optimizer.step();
    }
    model.gathered([&](M& module) {
        require_same_parameters(*whole, module);
        for (const auto& parameter : module.parameters()) {
            CHECK(ranks.agree(parameter));
        }
    });
    ranks.mpi->barrier();
}

} // namespace sharded_hooks_test

using namespace sharded_hooks_test;

TEST_CASE("ShardedHooks.nodes_exchange_rounded_sums_that_are_exact_within") {
    Ranks ranks;
    if (ranks.size() == 1) {
        return; // the bare model
    }
    for (const Hook& hook : {Hook(hook::Float16{}), Hook(hook::BFloat16{})}) {
        const DataParallelOptions parallel{.hook = hook};
        compare_with_reference<MlpImpl>(ranks, {.data_parallel = parallel});
        compare_with_reference<KindsImpl>(ranks, {.data_parallel = parallel});
        compare_with_reference<KindsImpl>(ranks,
                                          {.step_in_backward = true, .data_parallel = parallel});
        const auto whole = Shard::gradients;
        compare_with_reference<MlpImpl>(
            ranks, {.level = whole, .share = Share::none, .data_parallel = parallel});
        compare_with_reference<KindsImpl>(ranks, {.level = whole, .data_parallel = parallel});
        compare_with_reference<MlpImpl>(ranks, {.data_parallel = parallel}, 2);
        compare_with_reference<MlpImpl>(ranks,
                                        {.level = Shard::optimizer, .data_parallel = parallel}, 2);
    }
}

TEST_CASE("ShardedHooks.with_one_rank_a_node_the_bits_are_those_of_data_parallel") {
    Ranks ranks;
    const std::vector<int> nodes = ranks_of_nodes();
    if (nodes.size() != static_cast<std::size_t>(ranks.size())) {
        return;
    }
    using torch::optim::AdamW;
    const torch::optim::AdamWOptions options(1e-2);
    for (const Hook& hook : {Hook(hook::Float16{}), Hook(hook::BFloat16{})}) {
        const DataParallelOptions parallel{.hook = hook};
        compare<MlpImpl, AdamW>(ranks, make_mlp, options, parallel, mlp_step(ranks));
        compare<KindsImpl, AdamW>(ranks, make_kinds, options, parallel, kinds_step(ranks));
        compare<MlpImpl, AdamW>(ranks, make_mlp, options, parallel, mlp_step(ranks), 0,
                                {.step_in_backward = true});
    }
}

TEST_CASE("ShardedHooks.check_gradients_sees_what_float16_cannot_hold") {
    Ranks ranks;
    auto model = shard(ranks, make_mlp(),
                       {.data_parallel = {.hook = hook::Float16{}, .check_gradients = true}});
    auto optimizer = prepared(torch::optim::SGD(model->parameters(), 1e-3), model);
    const auto code_of_pass = [&](double factor) {
        optimizer.zero_grad();
        return code_of([&] { (model(torch::ones({2, 7})).sum() * factor).backward(); });
    };
    CHECK(code_of_pass(1).empty());
    CHECK(code_of_pass(1e9) == (ranks_of_nodes().size() > 1 ? "RT-M21" : ""));
    CHECK(code_of_pass(1).empty());
    optimizer.step();
    for (const auto& parameter : model->parameters()) {
        CHECK(parameter.isfinite().all().item<bool>());
        CHECK(ranks.agree(parameter));
    }
}
