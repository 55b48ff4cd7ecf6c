// SPDX-License-Identifier: Apache-2.0
// Weights of which ranks have their parts only, and which are gathered when they are used. Between
// nodes (tests/nodes), and on one node where each rank has its own slots.
#include "../support.hpp"
#include "../thrown.hpp"
#include "sharded_models.hpp"

#include <rtrain/base/exception_text.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/model/recompute.hpp>
#include <rtrain/model/units.hpp>
#include <rtrain/state/object_state.hpp>
#include <rtrain/weights.hpp>

#include <doctest/doctest.h>

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace test;

namespace {

/// By nodes where there are several, else by rank.
ShardedOptions gathering(const ShardedOptions& options = {}) {
    ShardedOptions changed = options;
    changed.level = Shard::parameters;
    changed.share = ranks_of_nodes().size() > 1 ? Share::node : Share::none;
    return changed;
}

/// Blocks between an embedding and a head that is tied to it, with an LSTM, a batch norm and
/// frozen, strided and empty parameters among them.
struct GptImpl : torch::nn::Module {
    explicit GptImpl(bool recomputes = false) : again(recomputes) {
        torch::manual_seed(9);
        table = register_module("table", torch::nn::Embedding(13, 12));
        for (int i = 0; i < 3; ++i) {
            torch::nn::Sequential block(torch::nn::LayerNorm(torch::nn::LayerNormOptions({12})),
                                        torch::nn::Linear(12, 40), torch::nn::GELU(),
                                        torch::nn::Linear(40, 12));
            blocks->push_back(block);
        }
        register_module("blocks", blocks);
        kinds = register_module("kinds", std::make_shared<KindsImpl>());
        norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({12})));
    }
    torch::Tensor forward(const torch::Tensor& ids) {
        auto x = table(ids);
        for (const auto& block : *blocks) {
            auto* const layers = block->as<torch::nn::Sequential>();
            const auto run = [layers](const torch::Tensor& in) { return in + layers->forward(in); };
            x = again ? recompute(run, x) : run(x);
        }
        return torch::matmul(norm(x), table->weight.t()) + kinds->forward(ids.remainder(11)).mean();
    }
    bool again;
    torch::nn::Embedding table{nullptr};
    torch::nn::ModuleList blocks;
    std::shared_ptr<KindsImpl> kinds;
    torch::nn::LayerNorm norm{nullptr};
};

auto gpt_step(Ranks& ranks) {
    return [&ranks](auto& model, auto& optimizer, int i) {
        optimizer.zero_grad();
        torch::manual_seed(static_cast<std::uint64_t>(50 * i + ranks.rank()));
        const auto ids = torch::randint(13, {4, 3});
        const auto next = torch::randint(13, {12});
        torch::cross_entropy_loss(model(ids).view({12, 13}), next).backward();
        optimizer.step();
    };
}
const std::function<std::shared_ptr<GptImpl>()> make_gpt = [] {
    return std::make_shared<GptImpl>();
};

/// The code of what `action` throws, also where torch has made an error of its own of it.
template <class Action>
std::string thrown_code(Action&& action) {
    try {
        action();
    } catch (const std::exception& error) {
        return rtrain::detail::code_of(error);
    }
    return "";
}

std::string names_of(const std::vector<rtrain::detail::Unit>& units) {
    std::string names;
    for (const auto& unit : units) {
        names += unit.name + " " + std::to_string(unit.parameters.size()) + ", ";
    }
    return names;
}

} // namespace

TEST_CASE("Units.are_blocks_of_containers_or_what_patterns_name") {
    const GptImpl gpt;
    const auto parameters = rtrain::detail::distinct_parameters(gpt, {});
    const auto units = [&](const std::vector<std::string>& patterns) {
        return names_of(rtrain::detail::plan_units(gpt, parameters, patterns));
    };
    CHECK(units({}) == "blocks.0 6, blocks.1 6, blocks.2 6, the rest 16, ");
    CHECK(units({"blocks", "table"}) == "table 1, blocks 18, the rest 15, ");
    CHECK(units({"*.lstm", "blocks.*.1"}) ==
          "blocks.0.1 2, blocks.1.1 2, blocks.2.1 2, kinds.lstm 4, the rest 24, ");
    CHECK(code_of([&] { (void)units({"block.*"}); }) == "RT-C42");
    CHECK(code_of([&] { (void)units({"blocks.3"}); }) == "RT-C42");
    const MlpImpl mlp;
    CHECK(names_of(rtrain::detail::plan_units(*mlp.layers,
                                              rtrain::detail::distinct_parameters(*mlp.layers, {}),
                                              {})) == "0 2, 2 2, 4 2, ");
}

TEST_CASE("ShardedParameters.trains_as_data_parallel_with_every_optimizer") {
    Ranks ranks;
    using namespace torch::optim;
    compare<GptImpl, AdamW>(ranks, make_gpt, AdamWOptions(1e-2), {}, gpt_step(ranks), 0,
                            gathering());
    compare<GptImpl, SGD>(ranks, make_gpt, SGDOptions(0.1).momentum(0.9), {}, gpt_step(ranks), 0,
                          gathering({.units = {"blocks.*", "table", "kinds.*"}}));
    compare<GptImpl, Adagrad>(ranks, make_gpt, AdagradOptions(1e-2), {}, gpt_step(ranks), 0,
                              gathering({.resident_units = 1}));
    compare<MlpImpl, RMSprop>(ranks, make_mlp, RMSpropOptions(1e-2), {}, mlp_step(ranks), 0,
                              gathering({.resident_units = 9}));
    compare<TableImpl, SGD>(
        ranks, [] { return std::make_shared<TableImpl>(); }, SGDOptions(0.1), {}, table_step(ranks),
        0, gathering());
    // On one node whose ranks share the weights it is another name of Shard::gradients.
    compare<GptImpl, AdamW>(ranks, make_gpt, AdamWOptions(1e-2), {}, gpt_step(ranks), 0,
                            {.level = Shard::parameters});
}

TEST_CASE("ShardedParameters.goes_with_other_options") {
    Ranks ranks;
    using namespace torch::optim;
    compare<GptImpl, AdamW>(
        ranks, [] { return std::make_shared<GptImpl>(/*recomputes=*/true); }, AdamWOptions(1e-2),
        {}, gpt_step(ranks), 0, gathering());
    compare<GptImpl, SGD>(ranks, make_gpt, SGDOptions(0.1), {}, gpt_step(ranks), 0,
                          gathering({.step_in_backward = true}));
    compare<MlpImpl, SGD>(ranks, make_mlp, SGDOptions(0.1),
                          {.autocast = torch::kBFloat16, .check_gradients = true}, mlp_step(ranks),
                          0, gathering());
    compare<MlpImpl, AdamW>(ranks, make_mlp, AdamWOptions(1e-2), {.autocast = torch::kBFloat16},
                            mlp_step(ranks), ranks.size() == 1 ? 0 : 1,
                            gathering({.parameter_type = torch::kBFloat16}));
    const Directory directory("sharded-parameters");
    compare<MlpImpl, AdamW>(ranks, make_mlp, AdamWOptions(1e-2), {}, mlp_step(ranks), 0,
                            gathering({.offload = offload::Disk{directory.path()}}));
    const auto clipped = [&](auto& model, auto& optimizer, int i) {
        optimizer.zero_grad();
        {
            const auto alone = model.no_sync();
            model(random(ranks.rank(), i, {5, model->in})).square().mean().backward();
        }
        model(random(ranks.rank(), 50 + i, {5, model->in})).square().mean().backward();
        model.clip_grad_norm_(0.1);
        optimizer.step();
        const torch::NoGradGuard no_grad; // evaluates
        CHECK(model(torch::ones({2, model->in})).isfinite().all().template item<bool>());
    };
    compare<MlpImpl, AdamW>(ranks, make_mlp, AdamWOptions(1e-2), {}, clipped, 1e-5, gathering());
    compare<TwoImpl, SGD>(
        ranks, [] { return std::make_shared<TwoImpl>(); }, SGDOptions(0.1),
        {.find_unused_parameters = true},
        [&](auto& model, auto& optimizer, int i) {
            optimizer.zero_grad();
            model(random(ranks.rank(), i, {3, 4}), i % 2 == 0).square().mean().backward();
            optimizer.step();
        },
        0, gathering({.units = {"*"}}));
}

TEST_CASE("ShardedParameters.is_edited_read_loaded_and_checked") {
    Ranks ranks;
    const Directory directory("gathered-weights");
    auto model = shard(ranks, make_gpt(), gathering({.data_parallel = {.check_parameters = 1}}));
    auto plain = ranks.prepare(make_gpt());
    auto optimizer = prepared(torch::optim::AdamW(model->parameters(), 1e-2), model);
    auto plain_optimizer = prepared(torch::optim::AdamW(plain->parameters(), 1e-2), plain);
    const auto step_both = [&](int i) {
        gpt_step(ranks)(model, optimizer, i);
        gpt_step(ranks)(plain, plain_optimizer, i);
        require_same_parameters(*plain.ptr(), *model.ptr());
    };
    step_both(0);
    const auto halve = [](GptImpl& gpt) {
        gpt.table->weight.mul_(0.5);
        gpt.norm->bias.fill_(0.25);
    };
    model.edit(halve);
    {
        const torch::NoGradGuard no_grad;
        halve(*plain);
    }
    step_both(1);

    const auto file = directory.path() / ("rank.safetensors");
    double sum = 0;
    model.gathered([&](GptImpl& gpt) {
        const auto* const weights = gpt.table->weight.const_data_ptr<float>();
        for (std::int64_t i = 0; i < gpt.table->weight.numel(); ++i) {
            sum += weights[i];
        }
        if (ranks.rank() == 0) {
            save_weights(file, gpt);
        }
    });
    const double expected = plain->table->weight.sum().item<double>();
    CHECK(sum == doctest::Approx(expected));
    CHECK(contains(message_of([&] {
                       model.gathered([&](GptImpl& /*gpt*/) {
                           if (ranks.rank() == ranks.size() - 1) {
                               throw ConfigError("RT-C11", "no such thing");
                           }
                       });
                   }),
                   "no such thing"));
    model.edit([](GptImpl& gpt) { gpt.table->weight.fill_(1); });
    if (ranks_of_nodes().size() == 1) { // the file is seen by all
        (void)load_weights(model, file);
        require_same_parameters(*plain.ptr(), *model.ptr());
        step_both(2);
    }
}

TEST_CASE("ShardedParameters.states_are_those_of_the_whole") {
    Ranks ranks;
    auto plain = ranks.prepare(make_gpt());
    auto plain_optimizer = prepared(torch::optim::AdamW(plain->parameters(), 1e-2), plain);
    gpt_step(ranks)(plain, plain_optimizer, 0);
    checkpoint::Snapshot saved;
    StateWriter out(saved, "m");
    checkpoint::save_module(*plain, out);

    auto model = shard(ranks, make_gpt(), gathering());
    auto optimizer = prepared(torch::optim::AdamW(model->parameters(), 1e-2), model);
    gpt_step(ranks)(model, optimizer, 3); // other values, and units that are there
    checkpoint::load_module(*model, StateReader(saved, "m"));
    require_same_parameters(*plain.ptr(), *model.ptr());

    // Of each parameter a rank saves its elements only, and does not communicate.
    checkpoint::Snapshot parts;
    StateWriter some(parts, "m");
    checkpoint::save_module(*model, some);
    std::int64_t elements = 0;
    for (const auto& [name, some_of] : parts.pieces) {
        CHECK(some_of.shape == saved.tensors.at(name).sizes().vec());
        for (const auto& piece : some_of.pieces) {
            elements += piece.elements.numel();
        }
    }
    at::Tensor all = torch::tensor({elements}, torch::kLong);
    ranks.mpi->all_reduce(all, ReduceOp::sum);
    std::int64_t whole = 0;
    for (const auto& parameter : model->parameters()) {
        whole += parameter.numel();
    }
    if (ranks.size() > 1) {
        CHECK(all.item<std::int64_t>() == whole);
    }
}

TEST_CASE("ShardedParameters.ranks_that_use_other_layers_are_told_so") {
    Ranks ranks;
    if (ranks.size() == 1) {
        return;
    }
    const auto prepare = [&](const ShardedOptions& options) {
        return shard(ranks, std::make_shared<TwoImpl>(), gathering(options));
    };
    {
        auto model = prepare({.units = {"*"}});
        const auto x = torch::ones({2, 4});
        const auto code = thrown_code(
            [&] { (ranks.rank() == 1 ? model->two(x) : model->one(x)).sum().item<float>(); });
        CHECK(code == "RT-M49");
        // The handle has the error itself, for good.
        CHECK(
            contains(message_of([&] { (void)model(x, true); }), "unit \"one\" is next on rank 0"));
        CHECK(contains(message_of([&] { model.edit([](TwoImpl&) {}); }), "RT-M49"));
    }
    {
        auto model = prepare({.units = {"*"}});
        const auto x = torch::ones({2, 4});
        (void)model(x, true);
        if (ranks.rank() == 0) { // the last use of "one" is behind that of "two" here
            (void)model->one(x);
        }
        CHECK(contains(message_of([&] {
                           try {
                               (void)model->three(x);
                           } catch (const c10::Error&) {
                               (void)model(x, true);
                           }
                       }),
                       "drops another unit"));
    }
    {
        auto model = prepare({.units = {"*"}, .resident_units = 1});
        const auto both = [&] {
            (void)torch::cat({model->one->weight, model->two->weight}).sum().item<float>();
        };
        CHECK(thrown_code(both) == "RT-M48");
    }
    {
        auto model = prepare({});
        std::string code;
        std::thread([&] {
            code = thrown_code([&] { (void)model->one(torch::ones({2, 4})).sum().item<float>(); });
        }).join();
        CHECK(code == "RT-M50");
    }
    ranks.mpi->barrier();
}

TEST_CASE("ShardedParameters.refuses_what_cannot_work") {
    Ranks ranks;
    const auto refused = [&](const ShardedOptions& options) {
        return code_of([&] { (void)shard(ranks, make_mlp(), gathering(options)); });
    };
    CHECK(refused({.resident_units = 0}) == "RT-C11");
    CHECK(refused({.units = {"no.such"}}) == "RT-C42");
    if (ranks.size() > 1) {
        CHECK(refused({.resident_units = 1 + ranks.rank()}) == "RT-M2");
    }
}
