// SPDX-License-Identifier: Apache-2.0
// What ranks hold in parts, and who has a copy of the weights: the bits of DataParallel in any
// case.
#include "models.hpp"
#include "support/file_limit.hpp"
#include "support/thrown.hpp"

#include <rtrain/comm/communicator.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <memory>

using namespace test;

namespace {

/// Some passes on each rank that communicate nothing, in numbers that differ by rank, then one that
/// sends.
auto accumulating_step(Ranks& ranks) {
    return [&ranks](auto& model, auto& optimizer, int i) {
        optimizer.zero_grad();
        const auto pass = [&](int k) {
            const auto x = random(ranks.rank(), 10 * i + k, {5, model->in});
            model(x).square().mean().backward();
        };
        {
            const auto alone = model.no_sync();
            for (int k = 0; k <= ranks.rank(); ++k) {
                pass(k);
            }
        }
        pass(9);
        optimizer.step();
    };
}

/// Dense gradients of all kinds of parameters, and sparse ones.
void compare_kinds_and_table(Ranks& ranks, const ShardedOptions& how) {
    using namespace torch::optim;
    compare<KindsImpl, AdamW>(ranks, make_kinds, AdamWOptions(1e-2), {}, kinds_step(ranks), 0, how);
    compare<TableImpl, SGD>(
        ranks, [] { return std::make_shared<TableImpl>(); }, SGDOptions(0.1), {}, table_step(ranks),
        0, how);
}

} // namespace

TEST_CASE("ShardedLevels.optimizer_accumulates_on_each_rank") {
    Ranks ranks;
    using namespace torch::optim;
    const ShardedOptions level{.level = Shard::optimizer};
    compare<MlpImpl, AdamW>(ranks, make_mlp, AdamWOptions(1e-2), {}, accumulating_step(ranks), 0,
                            level);
    compare<MlpImpl, SGD>(ranks, make_mlp, SGDOptions(0.1), {.check_gradients = true},
                          accumulating_step(ranks), 0, level);
    compare_kinds_and_table(ranks, level); // without passes under no_sync()
}

TEST_CASE("ShardedLevels.gradients_leaves_each_node_a_copy_of_the_weights") {
    Ranks ranks;
    using namespace torch::optim;
    const ShardedOptions level{.level = Shard::gradients};
    compare_kinds_and_table(ranks, level);
    compare<MlpImpl, SGD>(ranks, make_mlp, SGDOptions(0.1), {}, mlp_step(ranks), 0,
                          {.level = Shard::gradients, .step_in_backward = true});

    // Ranks need not run the same.
    auto model = shard(ranks, make_mlp(), level);
    if (ranks.rank() == 0) {
        const torch::NoGradGuard no_grad;
        CHECK(model(torch::ones({2, model->in})).isfinite().all().item<bool>());
        CHECK(std::isfinite(*model->parameters()[0].const_data_ptr<float>()));
    }
    ranks.mpi->barrier();
}

TEST_CASE("ShardedLevels.a_parameter_that_only_the_first_passes_use_is_stepped") {
    Ranks ranks;
    const auto step = [&](auto& model, auto& optimizer, int i) {
        optimizer.zero_grad();
        const auto pass = [&](int k, bool both) {
            model(random(ranks.rank(), 10 * i + k, {3, 4}), both).square().mean().backward();
        };
        {
            const auto alone = model.no_sync();
            pass(0, (ranks.rank() + i) % 2 == 0);
        }
        pass(1, false);
        optimizer.step();
    };
    compare<TwoImpl, torch::optim::AdamW>(ranks, [] { return std::make_shared<TwoImpl>(); },
                                          torch::optim::AdamWOptions(1e-2).weight_decay(0.1),
                                          {.find_unused_parameters = true}, step, 0,
                                          {.level = Shard::optimizer});
}

TEST_CASE("ShardedLevels.sums_that_nobody_has_sent_are_noticed_or_dropped") {
    Ranks ranks;
    auto model = shard(ranks, make_mlp(), {.level = Shard::optimizer});
    auto plain = ranks.prepare(make_mlp());
    auto optimizer = prepared(torch::optim::SGD(model->parameters(), 0.1), model);
    auto plain_optimizer = prepared(torch::optim::SGD(plain->parameters(), 0.1), plain);
    mlp_step(ranks)(model, optimizer, 0);
    mlp_step(ranks)(plain, plain_optimizer, 0);
    optimizer.zero_grad();
    {
        const auto alone = model.no_sync();
        model(random(ranks.rank(), 5, {5, 7})).square().mean().backward();
    }
    if (ranks.size() > 1) { // the bare model's optimizer takes them for what they are
        CHECK(contains(message_of([&] { optimizer.step(); }), "RT-M47"));
    }
    mlp_step(ranks)(model, optimizer, 1); // zeroes them
    mlp_step(ranks)(plain, plain_optimizer, 1);
    require_same_parameters(*plain.ptr(), *model.ptr());
    CHECK(contains(message_of([&] {
                       (void)shard(ranks, make_mlp(),
                                   {.level = Shard::optimizer, .step_in_backward = true});
                   }),
                   "RT-C12"));
}

TEST_CASE("ShardedLevels.each_rank_may_have_a_copy_of_the_weights") {
    Ranks ranks;
    using namespace torch::optim;
    const ShardedOptions copies{.level = Shard::gradients, .share = Share::none};
    compare<MlpImpl, AdamW>(ranks, make_mlp, AdamWOptions(1e-2), {}, mlp_step(ranks), 0, copies);
    compare<KindsImpl, AdamW>(ranks, make_kinds, AdamWOptions(1e-2), {}, kinds_step(ranks), 0,
                              copies);
    compare<KindsImpl, SGD>(
        ranks, make_kinds, SGDOptions(0.1), {}, kinds_step(ranks), 0,
        {.level = Shard::gradients, .share = Share::none, .step_in_backward = true});
    compare<MlpImpl, SGD>(ranks, make_mlp, SGDOptions(0.1), {}, accumulating_step(ranks), 0,
                          {.level = Shard::optimizer, .share = Share::none});
    // More than fits one message from rank to rank.
    compare<MlpImpl, SGD>(
        ranks,
        [] {
            return std::make_shared<MlpImpl>(std::vector<std::int64_t>{9, 1500, 1600, 3});
        },
        SGDOptions(0.1), {}, mlp_step(ranks), 0, copies);
}

TEST_CASE("ShardedLevels.copies_are_edited_alike") {
    Ranks ranks;
    auto model = shard(ranks, make_mlp(), {.level = Shard::gradients, .share = Share::none});
    auto optimizer = prepared(torch::optim::SGD(model->parameters(), 0.1), model);
    mlp_step(ranks)(model, optimizer, 0);
    model.edit([](MlpImpl& mlp) { mlp.parameters()[0].normal_(); });
    for (const auto& parameter : model->parameters()) {
        CHECK(ranks.agree(parameter));
    }
    mlp_step(ranks)(model, optimizer, 1);
    for (const auto& parameter : model->parameters()) {
        CHECK(ranks.agree(parameter));
    }
}

TEST_CASE("ShardedLevels.where_sharing_is_forbidden_each_rank_has_memory_of_its_own") {
    auto forbidden = std::make_unique<FileLimit>(0);
    Ranks ranks;
    forbidden.reset(); // a rank's own may be made in the same way
    using namespace torch::optim;
    CHECK(!ranks.mpi->communicator().shares_memory());
    for (const Share share : {Share::node, Share::none}) {
        for (const Shard level : {Shard::parameters, Shard::gradients}) {
            compare<MlpImpl, AdamW>(ranks, make_mlp, AdamWOptions(1e-2), {}, mlp_step(ranks), 0,
                                    {.level = level, .share = share});
        }
    }
    compare<KindsImpl, SGD>(ranks, make_kinds, SGDOptions(0.1), {}, kinds_step(ranks), 0,
                            {.step_in_backward = true});
    auto model = shard(ranks, make_mlp());
    model.edit([](MlpImpl& mlp) { mlp.parameters()[1].fill_(0.25); });
    CHECK(model->parameters()[1].eq(0.25).all().item<bool>());
}
