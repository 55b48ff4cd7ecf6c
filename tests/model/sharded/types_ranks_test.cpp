// SPDX-License-Identifier: Apache-2.0
// Models whose weights are bfloat16, of which ranks train float32 parts: under autocast, the bits
// of float32 weights.
#include "models.hpp"
#include "support/thrown.hpp"

#include <rtrain/state/exact_parts.hpp>

#include <doctest/doctest.h>

#include <memory>

using namespace test;

namespace {

ShardedOptions in_bfloat16(ShardedOptions options = {}) {
    options.parameter_type = torch::kBFloat16;
    options.data_parallel.autocast = torch::kBFloat16;
    return options;
}

/// Whether a parameter is `whole` as the model keeps it, and this rank's part of it exactly.
void require_rounded(const torch::Tensor& parameter, const torch::Tensor& whole) {
    CHECK(parameter.equal(whole.to(parameter.scalar_type())));
    if (const auto part = checkpoint::ExactParts::find(parameter)) {
        CHECK((part->elements.scalar_type() == torch::kFloat));
        CHECK(part->elements.equal(
            whole.reshape({-1}).narrow(0, part->of.begin, part->elements.numel())));
    }
}

/// Trains the same module by both engines under autocast.
template <class O, class Options>
void compare_rounded(Ranks& ranks, const Options& options, ShardedOptions how = {}) {
    how = in_bfloat16(how);
    how.slot_bytes = 4096;
    auto plain = ranks.prepare(make_mlp(), how.data_parallel);
    auto model = shard(ranks, make_mlp(), how);
    auto plain_optimizer = prepared(O(plain->parameters(), options), plain);
    auto optimizer = prepared(O(model->parameters(), options), model);
    const auto step = mlp_step(ranks);
    for (int i = 0; i < 5; ++i) {
        step(plain, plain_optimizer, i);
        step(model, optimizer, i);
    }
    for (const auto& item : model->named_parameters()) {
        CAPTURE(item.key());
        require_rounded(item.value(), plain->named_parameters()[item.key()].detach());
    }
    ranks.mpi->barrier();
}

/// What autocast leaves alone, too.
struct MixedImpl : torch::nn::Module {
    MixedImpl() {
        torch::manual_seed(7);
        embedding = register_module("embedding", torch::nn::Embedding(11, 6));
        table = register_module(
            "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(11, 6).sparse(true)));
        norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
        in = register_module("in", torch::nn::Linear(6, 9));
        batch_norm = register_module("batch_norm", torch::nn::BatchNorm1d(9));
        out = register_module("out", torch::nn::Linear(9, 11));
        wide = register_parameter("wide", torch::randn({6, 6}, torch::kDouble));
        strided = register_parameter("strided", torch::randn({6, 6}).t());
        empty = register_parameter("empty", torch::randn({0, 4}));
    }
    torch::Tensor forward(const torch::Tensor& x) {
        auto h = embedding(x) + table(x);
        h = norm(h).matmul(strided);
        h = h + h.matmul(wide.to(torch::kFloat)) + empty.sum();
        return out(torch::relu(batch_norm(in(h))));
    }
    torch::nn::Embedding embedding{nullptr}, table{nullptr};
    torch::nn::LayerNorm norm{nullptr};
    torch::nn::Linear in{nullptr}, out{nullptr};
    torch::nn::BatchNorm1d batch_norm{nullptr};
    torch::Tensor wide, strided, empty;
};

} // namespace

TEST_CASE("ShardedTypes.bfloat16_weights_train_as_float32_ones_under_autocast") {
    Ranks ranks;
    using namespace torch::optim;
    compare_rounded<AdamW>(ranks, AdamWOptions(1e-2));
    compare_rounded<SGD>(ranks, SGDOptions(0.1).momentum(0.9));
    compare_rounded<Adagrad>(ranks, AdagradOptions(1e-2));
    compare_rounded<AdamW>(ranks, AdamWOptions(1e-2), {.level = Shard::optimizer});
    compare_rounded<AdamW>(ranks, AdamWOptions(1e-2),
                           {.level = Shard::gradients, .share = Share::none});
    compare_rounded<AdamW>(ranks, AdamWOptions(1e-2), {.step_in_backward = true});
}

TEST_CASE("ShardedTypes.passes_under_no_sync_are_added_up_in_float32") {
    Ranks ranks;
    for (const Shard level : {Shard::optimizer, Shard::gradients}) {
        CAPTURE(static_cast<int>(level));
        const ShardedOptions how = in_bfloat16({.level = level});
        auto plain = ranks.prepare(make_mlp(), how.data_parallel);
        auto model = shard(ranks, make_mlp(), how);
        auto plain_optimizer = prepared(torch::optim::SGD(plain->parameters(), 0.1), plain);
        auto optimizer = prepared(torch::optim::SGD(model->parameters(), 0.1), model);
        const auto step = [&](auto& trained, auto& stepped) {
            stepped.zero_grad();
            const auto pass = [&](int number) {
                const auto x = random(ranks.rank(), number, {5, 7});
                trained(x).square().mean().backward();
            };
            {
                const auto alone = trained.no_sync();
                for (int number = 1; number < 8; ++number) {
                    pass(number);
                }
            }
            pass(8);
            stepped.step();
        };
        step(plain, plain_optimizer);
        step(model, optimizer);
        for (const auto& item : model->named_parameters()) {
            CAPTURE(item.key());
            const auto whole = plain->named_parameters()[item.key()].detach();
            if (level == Shard::optimizer) {
                require_rounded(item.value(), whole);
            } else if (const auto part = checkpoint::ExactParts::find(item.value())) {
                const auto theirs =
                    whole.reshape({-1}).narrow(0, part->of.begin, part->elements.numel());
                CHECK(part->elements.allclose(theirs, 0, 1e-6));
            }
        }
        ranks.mpi->barrier();
    }
}

TEST_CASE("ShardedTypes.models_of_every_kind_train") {
    Ranks ranks;
    for (const bool in_backward : {false, true}) {
        auto model = shard(ranks, std::make_shared<MixedImpl>(),
                           in_bfloat16({.step_in_backward = in_backward}));
        auto optimizer = prepared(torch::optim::SGD(model->parameters(), 0.2), model);
        const auto loss_of = [&] {
            torch::manual_seed(4);
            const auto x = torch::randint(11, {24});
            return torch::cross_entropy_loss(model(x), x);
        };
        const double before = loss_of().item<double>();
        for (int i = 0; i < 30; ++i) {
            optimizer.zero_grad();
            loss_of().backward();
            optimizer.step();
        }
        CHECK(loss_of().item<double>() < before / 2);
        for (const auto& item : model->named_parameters()) {
            CAPTURE(item.key());
            CHECK(ranks.agree(item.value()));
            const bool is_kept = ranks.size() == 1 || item.value().dim() == 1;
            const auto type = item.key() == "wide" ? torch::kDouble
                              : is_kept            ? torch::kFloat
                                                   : torch::kBFloat16;
            CHECK((item.value().scalar_type() == type));
        }
    }
}

TEST_CASE("ShardedTypes.what_is_edited_is_what_parts_go_on_from") {
    Ranks ranks;
    auto model = shard(ranks, make_mlp(), in_bfloat16());
    auto optimizer = prepared(torch::optim::SGD(model->parameters(), 0.1), model);
    mlp_step(ranks)(model, optimizer, 0);
    const auto& weights = model->parameters();
    const auto untouched = checkpoint::ExactParts::find(weights[2]);
    const auto kept = untouched ? untouched->elements.detach().clone() : torch::Tensor();
    model.edit([](MlpImpl& mlp) { mlp.parameters()[0].fill_(3); });
    CHECK(weights[0].eq(3).all().item<bool>());
    if (ranks.size() > 1) {
        REQUIRE(untouched);
        CHECK(untouched->elements.equal(kept)); // not rounded
        CHECK(checkpoint::ExactParts::find(weights[0])->elements.eq(3).all().item<bool>());
    }
    mlp_step(ranks)(model, optimizer, 1);
    CHECK(weights[0].sub(3).abs().max().item<double>() < 0.1);
    CHECK(ranks.agree(weights[0]));
}

TEST_CASE("ShardedTypes.others_are_refused") {
    Ranks ranks;
    const auto refused = [&](const ShardedOptions& options) {
        return code_of([&] { (void)shard(ranks, make_mlp(), options); });
    };
    CHECK(refused({.parameter_type = torch::kBFloat16}) == "RT-C12");
    CHECK(refused({.parameter_type = torch::kHalf, .data_parallel = {.autocast = torch::kHalf}}) ==
          "RT-C11");
}
