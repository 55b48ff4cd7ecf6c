// SPDX-License-Identifier: Apache-2.0
// Weights of which ranks have their parts only, and which are gathered when they are used. Between
// nodes (tests/nodes), and on one node where each rank has its own slots.
#include "model/sharded/models.hpp"
#include "support/thrown.hpp"
#include "support/training.hpp"

#include <rtrain/base/exception_text.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/model/activation/recompute.hpp>
#include <rtrain/model/sharded/plan/unit_order.hpp>
#include <rtrain/model/sharded/plan/units.hpp>
#include <rtrain/model/sharded/weights/shared_weights.hpp>
#include <rtrain/state/module_state.hpp>
#include <rtrain/weights.hpp>

#include <doctest/doctest.h>

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace test;

namespace {

/// By nodes where there are several, else by rank.
ShardedOptions gathering(const ShardedOptions& options = {}) {
    ShardedOptions changed = options;
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

/// By torch::save(), which would write nothing of weights that are not there.
template <class Model>
concept Archived = requires(torch::serialize::OutputArchive& archive, const Model& model) {
    archive << model;
};
static_assert(Archived<DataParallel<GptImpl, backend::Mpi>>);
static_assert(!Archived<ShardedParallel<GptImpl, backend::Mpi>>);

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

/// Goes through its layers, around some, or not to the end.
struct WaysImpl : torch::nn::Module {
    enum class Way { through, around, throws };
    WaysImpl() {
        torch::manual_seed(12);
        for (int i = 0; i < 5; ++i) {
            layers->push_back(torch::nn::Linear(4, 4));
        }
        register_module("layers", layers);
    }
    torch::Tensor forward(const torch::Tensor& x, Way way) {
        const auto run = [this](std::size_t layer, const torch::Tensor& in) {
            return torch::tanh(layers[layer]->as<torch::nn::Linear>()->forward(in));
        };
        auto h = run(1, run(0, x));
        if (way == Way::throws) {
            throw std::runtime_error("no way");
        }
        for (const std::size_t layer : way == Way::through ? std::vector<std::size_t>{2, 3, 4}
                                                           : std::vector<std::size_t>{4, 2, 4, 3}) {
            h = run(layer, h);
        }
        return h;
    }
    torch::nn::ModuleList layers;
};

/// An embedding that is also the head, and layers between.
struct TiedImpl : torch::nn::Module {
    TiedImpl() {
        torch::manual_seed(13);
        table = register_module("table", torch::nn::Embedding(13, 6));
        for (int i = 0; i < 3; ++i) {
            layers->push_back(torch::nn::Linear(6, 6));
        }
        register_module("layers", layers);
    }
    torch::Tensor forward(const torch::Tensor& ids) {
        return layers->forward(table(ids)).matmul(table->weight.t());
    }
    torch::nn::Embedding table{nullptr};
    torch::nn::Sequential layers;
};

/// The code of what `action` throws, also where torch has made an error of its own of it.
template <class Action>
std::string thrown_code(Action&& action) {
    try {
        action();
    } catch (const std::exception& error) {
        return rtrain::detail::failure_of(error).code.text();
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
    // Where one node's ranks share the weights, there is nothing to gather.
    compare<GptImpl, AdamW>(ranks, make_gpt, AdamWOptions(1e-2), {}, gpt_step(ranks), 0);
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

TEST_CASE("UnitOrder.is_that_of_the_last_pass_that_went_elsewhere_or_further") {
    using rtrain::detail::UnitOrder;
    UnitOrder order;
    const auto pass = [&order](const std::vector<std::size_t>& units) {
        bool followed = true;
        for (const std::size_t unit : units) {
            order.use(unit);
            followed = followed && order.is_followed();
        }
        order.begin_pass();
        return followed;
    };
    const std::vector<std::size_t> training{0, 1, 2, 1, 0};
    CHECK(!pass(training)); // there is none
    const auto hash = order.hash();
    CHECK(!pass(training)); // other ranks may have another
    order.agree(true);
    CHECK(pass(training));
    CHECK(pass({0, 1, 2})); // an evaluation
    CHECK(pass(training));
    order.use(0);
    CHECK(order.until(0) == 3);
    CHECK(order.until(1) == 0);
    CHECK(order.until(7) == UnitOrder::never);
    CHECK(order.next_without([](std::size_t unit) { return unit < 2; }) == 2);
    CHECK(order.next_without([](std::size_t /*unit*/) { return true; }) == UnitOrder::never);
    order.begin_pass();
    CHECK(order.hash() == hash);
    CHECK(!pass({0, 2, 1})); // a branch
    CHECK(order.hash() != hash);
    CHECK(!order.is_followed());
    order.agree(true);
    CHECK(pass({0, 2, 1}));
}

TEST_CASE("ShardedParameters.units_are_gathered_ahead_where_passes_go_as_before") {
    Ranks ranks;
    if (ranks.size() == 1) {
        return;
    }
    const auto make = [] {
        return std::make_shared<MlpImpl>(std::vector<std::int64_t>{7, 9, 11, 13, 8, 3});
    };
    const auto train = [&](const ShardedOptions& options, auto&& between) {
        auto model = shard(ranks, make(), gathering(options));
        auto optimizer = prepared(torch::optim::SGD(model->parameters(), 0.1), model);
        const auto counted = [&](auto&& run) {
            const auto before = model.prepared()->weights()->gather_counts();
            run();
            const auto after = model.prepared()->weights()->gather_counts();
            return std::pair(after.all - before.all, after.ahead - before.ahead);
        };
        const auto step = [&](int i) {
            return counted([&] { mlp_step(ranks)(model, optimizer, i); });
        };
        between(model, counted, step);
        ranks.mpi->barrier();
    };
    using Count = std::pair<std::int64_t, std::int64_t>;
    // Five layers in forward; in backward two of the four that it reads are still there.
    train({}, [](auto& /*model*/, auto& /*counted*/, auto& step) {
        CHECK(step(0) == Count(7, 0));
        CHECK(step(1) == Count(7, 6)); // all but the first
        CHECK(step(2) == Count(7, 6));
    });
    train({.resident_units = 1}, [](auto& /*model*/, auto& /*counted*/, auto& step) {
        (void)step(0);
        (void)step(1);
        CHECK(step(2) == Count(8, 0));
    });
    train({}, [](auto& model, auto& counted, auto& step) {
        for (int i = 0; i < 3; ++i) {
            (void)step(i);
        }
        const auto evaluate = [&] {
            const torch::NoGradGuard no_grad;
            CHECK(model(torch::ones({2, 7})).isfinite().all().template item<bool>());
        };
        CHECK(counted(evaluate) == Count(5, 4));
        CHECK(counted(evaluate).second == 4);
        CHECK(step(3).second >= 5); // the evaluation is forgotten
    });
}

TEST_CASE("ShardedParameters.a_tied_weight_is_gathered_for_each_use_unless_a_slot_keeps_it") {
    Ranks ranks;
    if (ranks.size() == 1) {
        return;
    }
    const auto gathers_of_steps = [&](int resident) {
        auto model = shard(ranks, std::make_shared<TiedImpl>(),
                           gathering({.units = {"table", "layers.*"}, .resident_units = resident}));
        auto optimizer = prepared(torch::optim::SGD(model->parameters(), 0.1), model);
        std::vector<std::int64_t> gathers;
        for (int i = 0; i < 3; ++i) {
            const auto before = model.prepared()->weights()->gather_counts().all;
            optimizer.zero_grad();
            torch::manual_seed(static_cast<std::uint64_t>(50 * i + ranks.rank()));
            model(torch::randint(13, {4})).square().mean().backward();
            optimizer.step();
            gathers.push_back(model.prepared()->weights()->gather_counts().all - before);
        }
        ranks.mpi->barrier();
        return gathers;
    };
    using Gathers = std::vector<std::int64_t>;
    // Forward uses the table, three layers and the table, backward the table and the layers.
    CHECK(gathers_of_steps(1) == Gathers(3, 8));
    CHECK(gathers_of_steps(2) == Gathers(3, 7));
    CHECK(gathers_of_steps(3) == Gathers({6, 5, 5})); // a known order keeps the table
    CHECK(gathers_of_steps(4) == Gathers(3, 4));
}

TEST_CASE("ShardedParameters.a_model_may_end_in_another_thread") {
    Ranks ranks;
    using Way = WaysImpl::Way;
    auto model = std::make_unique<Sharded<WaysImpl>>(
        shard(ranks, std::make_shared<WaysImpl>(), gathering()));
    const auto x = torch::ones({2, 4});
    auto optimizer = std::make_unique<FusedOptimizer<torch::optim::SGD>>(
        prepared(torch::optim::SGD((*model)->parameters(), 0.1), *model));
    const auto pass = [&](Way way) { (*model)(x, way).square().mean().backward(); };
    pass(Way::through);
    pass(Way::through);
    CHECK_THROWS_AS(pass(Way::throws), std::runtime_error); // while a unit is on its way
    std::thread([&] {
        optimizer.reset();
        model.reset();
    }).join();
    CHECK(x.add(1).sum().item<float>() == 16); // operators here have nothing to go on with
    ranks.mpi->barrier();
}

TEST_CASE("ShardedParameters.trains_alike_when_the_order_changes") {
    Ranks ranks;
    using Way = WaysImpl::Way;
    const auto step = [&](auto& model, auto& optimizer, int i) {
        optimizer.zero_grad();
        const auto x = random(ranks.rank(), i, {5, 4});
        if (i == 3) { // behind a unit that was started ahead
            CHECK_THROWS_AS((void)model(x, Way::throws), std::runtime_error);
        }
        model(x, i == 2 ? Way::around : Way::through).square().mean().backward();
        optimizer.step();
        const torch::NoGradGuard no_grad;
        for (int batch = 0; batch < i; ++batch) { // evaluates, as often as it likes
            CHECK(
                model(x, batch == 2 ? Way::around : Way::through).isfinite().all().item().toBool());
        }
    };
    const auto make = [] { return std::make_shared<WaysImpl>(); };
    using namespace torch::optim;
    for (const int resident : {1, 2, 3}) {
        compare<WaysImpl, AdamW>(
            ranks, make, AdamWOptions(1e-2), {}, step, 0,
            gathering({.units = {"layers.*.*"}, .resident_units = resident * 2}));
        compare<WaysImpl, SGD>(ranks, make, SGDOptions(0.1), {}, step, 0,
                               gathering({.resident_units = resident}));
    }
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
                       "drops a different unit"));
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

TEST_CASE("ShardedParameters.a_gather_that_fails_in_backward_ends_it_on_all_ranks") {
    using Way = WaysImpl::Way;
    for (const int steps_before : {0, 2}) { // then it has been started ahead
        for (const bool throws : {false, true}) {
            CAPTURE(steps_before);
            CAPTURE(throws);
            Ranks ranks;
            if (ranks.size() == 1) {
                return;
            }
            auto model = shard(ranks, std::make_shared<WaysImpl>(), gathering());
            auto optimizer = prepared(torch::optim::SGD(model->parameters(), 0.1), model);
            const auto pass = [&](bool fails) {
                const auto x = random(ranks.rank(), 0, {5, 4});
                const auto y = model(x, Way::through);
                if (fails && ranks.rank() == 1) {
                    y.register_hook([&](const at::Tensor& /*gradient*/) {
                        if (throws) {
                            throw std::runtime_error("no gradient");
                        }
                        (void)model->layers[0]->as<torch::nn::Linear>()->forward(x);
                    });
                }
                optimizer.zero_grad();
                y.square().mean().backward();
                optimizer.step();
            };
            for (int i = 0; i < steps_before; ++i) {
                pass(false);
            }
            const auto code = thrown_code([&] { pass(true); });
            if (!throws) {
                CHECK(code == "RT-M49");
                CHECK(contains(message_of([&] {
                                   (void)model(torch::ones({2, 4}), Way::through);
                               }),
                               "RT-M49"));
            } else if (ranks.rank() == 1) {
                CHECK(code == "RT-T2");
                ranks.outcome = Failure{.message = "no gradient"};
            } else {
                CHECK(code == "RT-X1");
            }
        }
    }
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
