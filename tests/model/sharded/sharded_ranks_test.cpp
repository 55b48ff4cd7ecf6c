// SPDX-License-Identifier: Apache-2.0
// Models of which a node has one copy: the bits of DataParallel.
#include "models.hpp"
#include "support/thrown.hpp"
#include "support/training.hpp"

#include <rtrain/comm/communicator.hpp>
#include <rtrain/model/amp/grad_scaler.hpp>
#include <rtrain/state/module_state.hpp>
#include <rtrain/state/optimizer_state.hpp>
#include <rtrain/weights.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace test;

TEST_CASE("Sharded.trains_as_data_parallel_with_every_optimizer") {
    Ranks ranks;
    using namespace torch::optim;
    const auto step = mlp_step(ranks);
    compare<MlpImpl, SGD>(
        ranks, make_mlp, SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true), {}, step);
    compare<MlpImpl, Adam>(ranks, make_mlp, AdamOptions(1e-2).amsgrad(true), {}, step);
    compare<MlpImpl, AdamW>(ranks, make_mlp, AdamWOptions(1e-2), {}, step);
    compare<MlpImpl, RMSprop>(ranks, make_mlp, RMSpropOptions(1e-2).centered(true).momentum(0.5),
                              {}, step);
    compare<MlpImpl, Adagrad>(ranks, make_mlp, AdagradOptions(1e-2).initial_accumulator_value(0.1),
                              {}, step);
}

TEST_CASE("Sharded.parameters_lie_once_a_node_and_parts_are_the_optimizers") {
    Ranks ranks;
    auto model = shard(ranks, make_mlp());
    auto optimizer = prepared(torch::optim::AdamW(model->parameters(), 0.1), model);
    std::int64_t elements = 0;
    for (const auto& part : optimizer.param_groups()[0].params()) {
        elements += part.numel();
    }
    auto all = torch::tensor({elements}, torch::kLong);
    ranks.mpi->all_reduce(all, ReduceOp::sum);
    std::int64_t expected = 0;
    for (const auto& parameter : model->parameters()) {
        expected += parameter.numel();
    }
    CHECK(all.item<std::int64_t>() == expected);
    mlp_step(ranks)(model, optimizer, 0);
    for (const auto& parameter : model->parameters()) {
        CHECK(ranks.agree(parameter));
        CHECK((ranks.size() == 1 || !parameter.grad().defined()));
    }
}

TEST_CASE("Sharded.takes_models_of_every_kind") {
    Ranks ranks;
    const auto options = torch::optim::AdamWOptions(1e-2);
    const auto step = kinds_step(ranks);
    compare<KindsImpl, torch::optim::AdamW>(ranks, make_kinds, options, {}, step);
    compare<KindsImpl, torch::optim::SGD>(ranks, make_kinds, torch::optim::SGDOptions(0.1), {},
                                          step);
}

TEST_CASE("Sharded.parameters_with_gaps_become_contiguous") {
    Ranks ranks;
    struct GapsImpl : torch::nn::Module {
        GapsImpl() {
            torch::manual_seed(5);
            gaps = register_parameter("gaps", torch::randn({6, 12}).slice(1, 0, 12, 2));
        }
        torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(x.matmul(gaps)); }
        torch::Tensor gaps;
    };
    compare<GapsImpl, torch::optim::AdamW>(
        ranks, [] { return std::make_shared<GapsImpl>(); }, torch::optim::AdamWOptions(1e-2), {},
        [&](auto& model, auto& optimizer, int i) {
            optimizer.zero_grad();
            model(random(ranks.rank(), i, {5, 6})).square().mean().backward();
            optimizer.step();
        },
        1e-5); // products of another layout may round otherwise
}

TEST_CASE("Sharded.sparse_gradients_are_averaged") {
    Ranks ranks;
    compare<TableImpl, torch::optim::SGD>(
        ranks, [] { return std::make_shared<TableImpl>(); }, torch::optim::SGDOptions(0.1), {},
        table_step(ranks));
}

TEST_CASE("Sharded.unused_parameters_keep_what_they_have") {
    Ranks ranks;
    const auto make = [] { return std::make_shared<TwoImpl>(); };
    const auto step = [&](bool accumulates) {
        return [&ranks, accumulates](auto& model, auto& optimizer, int i) {
            optimizer.zero_grad();
            const auto pass = [&](int k) {
                const bool both = (ranks.rank() + i + k) % 2 == 0;
                model(random(ranks.rank(), 10 * i + k, {3, 4}), both).square().mean().backward();
            };
            if (accumulates) {
                const auto alone = model.no_sync();
                pass(0);
                pass(1);
            }
            pass(2);
            optimizer.step();
        };
    };
    const auto options = torch::optim::AdamWOptions(1e-2).weight_decay(0.1);
    compare<TwoImpl, torch::optim::AdamW>(ranks, make, options, {.find_unused_parameters = true},
                                          step(false));
    compare<TwoImpl, torch::optim::AdamW>(ranks, make, options, {.find_unused_parameters = true},
                                          step(true), 1e-6);
}

TEST_CASE("Sharded.accumulates") {
    Ranks ranks;
    const auto step = [&](auto& model, auto& optimizer, int i) {
        optimizer.zero_grad();
        {
            const auto alone = model.no_sync();
            for (int k = 0; k < 2; ++k) {
                model(random(ranks.rank(), 10 * i + k, {5, model->in})).square().mean().backward();
            }
        }
        model(random(ranks.rank(), 10 * i + 3, {5, model->in})).square().mean().backward();
        model(random(ranks.rank(), 10 * i + 4, {5, model->in})).square().mean().backward();
        optimizer.step();
    };
    compare<MlpImpl, torch::optim::SGD>(ranks, make_mlp, torch::optim::SGDOptions(0.1), {}, step,
                                        1e-6);
}

TEST_CASE("Sharded.clips_by_the_norm_of_all_parts") {
    Ranks ranks;
    for (const double norm_type : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
        std::vector<double> norms;
        compare<MlpImpl, torch::optim::SGD>(
            ranks, make_mlp, torch::optim::SGDOptions(0.5), {},
            [&](auto& model, auto& optimizer, int i) {
                optimizer.zero_grad();
                model(random(ranks.rank(), i, {5, model->in})).square().mean().backward();
                norms.push_back(model.clip_grad_norm_(0.01, norm_type));
                optimizer.step();
            },
            1e-6);
        for (std::size_t i = 0; i < norms.size(); i += 2) {
            CHECK(norms[i] == doctest::Approx(norms[i + 1]).epsilon(1e-5));
        }
    }
}

TEST_CASE("Sharded.scaler_skips_on_all_ranks") {
    Ranks ranks;
    auto model = shard(ranks, make_mlp());
    auto optimizer = prepared(torch::optim::Adam(model->parameters(), 0.1), model);
    GradScaler scaler({.init_scale = 4});
    const auto before = model->parameters()[0].clone();
    const auto pass = [&](double factor) {
        optimizer.zero_grad();
        scaler.scale(model(random(ranks.rank(), 0, {5, 7})).sum() * factor).backward();
        const bool stepped = scaler.step(optimizer);
        scaler.update();
        return stepped;
    };
    const double infinite = std::numeric_limits<double>::infinity();
    CHECK(!pass(ranks.rank() == 0 ? infinite : 1));
    CHECK(model->parameters()[0].equal(before));
    CHECK(pass(1));
    CHECK(!model->parameters()[0].equal(before));
    CHECK(ranks.agree(model->parameters()[0]));
}

TEST_CASE("Sharded.check_gradients_names_the_parameter_on_all_ranks") {
    Ranks ranks;
    auto model = shard(ranks, make_mlp(), {.data_parallel = {.check_gradients = true}});
    auto optimizer = prepared(torch::optim::SGD(model->parameters(), 0.1), model);
    const double nan = ranks.rank() == 0 ? std::nan("") : 1;
    const auto error = message_of([&] { (model(random(0, 0, {5, 7})) * nan).sum().backward(); });
    CHECK(contains(error, "RT-M21"));
    CHECK(contains(error, "layers.0.weight"));
}

TEST_CASE("Sharded.autocast_and_groups") {
    Ranks ranks;
    compare<MlpImpl, torch::optim::AdamW>(ranks, make_mlp, torch::optim::AdamWOptions(1e-2),
                                          {.autocast = torch::kBFloat16}, mlp_step(ranks));
    auto group =
        std::shared_ptr<comm::Communicator>(ranks.mpi->communicator().split(ranks.rank() % 2));
    compare<MlpImpl, torch::optim::AdamW>(ranks, make_mlp, torch::optim::AdamWOptions(1e-2),
                                          {.group = group}, mlp_step(ranks));
}

TEST_CASE("Sharded.frees_and_freezes") {
    Ranks ranks;
    compare<MlpImpl, torch::optim::SGD>(ranks, make_mlp, torch::optim::SGDOptions(0.1), {},
                                        [&](auto& model, auto& optimizer, int i) {
                                            model->layers->parameters()[0].set_requires_grad(
                                                i % 2 == 0);
                                            mlp_step(ranks)(model, optimizer, i);
                                        });
}

TEST_CASE("Sharded.backward_steps_with_every_optimizer") {
    Ranks ranks;
    using namespace torch::optim;
    const auto step = mlp_step(ranks);
    const auto in_backward = [&]<class O>(const auto& options, O* /*kind*/) {
        compare<MlpImpl, O>(ranks, make_mlp, options, {}, step, 0, {.step_in_backward = true});
    };
    in_backward(SGDOptions(0.1).momentum(0.9).weight_decay(0.01), static_cast<SGD*>(nullptr));
    in_backward(AdamOptions(1e-2).amsgrad(true), static_cast<Adam*>(nullptr));
    in_backward(AdamWOptions(1e-2), static_cast<AdamW*>(nullptr));
    in_backward(RMSpropOptions(1e-2).momentum(0.5), static_cast<RMSprop*>(nullptr));
    in_backward(AdagradOptions(1e-2), static_cast<Adagrad*>(nullptr));
}

TEST_CASE("Sharded.backward_steps_models_of_every_kind") {
    Ranks ranks;
    compare<KindsImpl, torch::optim::AdamW>(ranks, make_kinds, torch::optim::AdamWOptions(1e-2), {},
                                            kinds_step(ranks), 0, {.step_in_backward = true});
    compare<TableImpl, torch::optim::SGD>(ranks, [] { return std::make_shared<TableImpl>(); },
                                          torch::optim::SGDOptions(0.1), {}, table_step(ranks), 0,
                                          {.step_in_backward = true});
    compare<MlpImpl, torch::optim::SGD>(
        ranks, make_mlp, torch::optim::SGDOptions(0.1), {.autocast = torch::kBFloat16},
        [&](auto& model, auto& optimizer, int i) {
            model->layers->parameters()[0].set_requires_grad(i % 2 == 0);
            mlp_step(ranks)(model, optimizer, i);
        },
        0, {.step_in_backward = true});
}

TEST_CASE("Sharded.backward_steps_and_keeps_no_gradients") {
    Ranks ranks;
    auto whole = ranks.prepare(make_mlp());
    auto model = shard(ranks, make_mlp(), {.slot_bytes = 4096, .step_in_backward = true});
    // Of two optimizers, which have moved since.
    const auto first = [](const auto& all) {
        return std::vector<torch::Tensor>{all.begin(), all.begin() + 2};
    };
    const auto rest = [](const auto& all) {
        return std::vector<torch::Tensor>{all.begin() + 2, all.end()};
    };
    using torch::optim::Adam;
    using torch::optim::SGD;
    auto adam = prepared(Adam(first(model->parameters()), 1e-2), model);
    auto sgd = prepared(SGD(rest(model->parameters()), 0.1), model);
    auto adam_of_whole = prepared(Adam(first(whole->parameters()), 1e-2), whole);
    auto sgd_of_whole = prepared(SGD(rest(whole->parameters()), 0.1), whole);
    const auto moved = std::make_unique<decltype(adam)>(std::move(adam));
    for (int i = 0; i < 3; ++i) {
        const double rate = 0.1 / (1 + i);
        for (auto* optimizer : {&sgd, &sgd_of_whole}) {
            static_cast<torch::optim::SGDOptions&>(optimizer->param_groups()[0].options()).lr(rate);
            optimizer->zero_grad();
        }
        moved->zero_grad();
        adam_of_whole.zero_grad();
        const auto x = random(ranks.rank(), i, {5, 7});
        model(x).square().mean().backward();
        for (auto* optimizer : std::initializer_list<torch::optim::Optimizer*>{moved.get(), &sgd}) {
            for (const auto& part : optimizer->param_groups()[0].params()) {
                CHECK((ranks.size() == 1 || !part.grad().defined()));
            }
        }
        moved->step();
        sgd.step();
        whole(x).square().mean().backward();
        adam_of_whole.step();
        sgd_of_whole.step();
        require_same_parameters(*whole.ptr(), *model.ptr());
        for (const auto& parameter : model->parameters()) {
            CHECK(ranks.agree(parameter));
        }
    }
}

TEST_CASE("Sharded.reading_a_stepped_parameter_in_backward_is_noticed") {
    Ranks ranks;
    struct LateImpl : torch::nn::Module {
        LateImpl() {
            torch::manual_seed(4);
            one = register_module("one", torch::nn::Linear(4, 4));
            two = register_module("two", torch::nn::Linear(4, 4));
        }
        /// Its backward reads the weight of `two` last, long after that has its gradient.
        torch::Tensor forward(const torch::Tensor& x) {
            return two(torch::tanh(one(x)).matmul(two->weight.detach()));
        }
        torch::nn::Linear one{nullptr}, two{nullptr};
    };
    if (ranks.size() == 1) {
        return; // its weights are whole until step()
    }
    auto model = shard(ranks, std::make_shared<LateImpl>(), {.step_in_backward = true});
    auto optimizer = prepared(torch::optim::SGD(model->parameters(), 0.1), model);
    CHECK_THROWS_WITH(model(random(ranks.rank(), 0, {3, 4})).square().mean().backward(),
                      doctest::Contains("modified by an inplace operation"));
}

TEST_CASE("Sharded.evaluates_between_backward_and_step") {
    Ranks ranks;
    compare<MlpImpl, torch::optim::SGD>(ranks, make_mlp, torch::optim::SGDOptions(0.1), {},
                                        [&](auto& model, auto& optimizer, int i) {
                                            optimizer.zero_grad();
                                            const auto x = random(ranks.rank(), i, {5, model->in});
                                            model(x).square().mean().backward();
                                            if (ranks.rank() == 0) {
                                                const torch::NoGradGuard no_grad;
                                                const auto once = model(x);
                                                for (int k = 0; k < 20; ++k) {
                                                    CHECK(model(x).equal(once));
                                                }
                                            }
                                            optimizer.step();
                                        },
                                        0, {.level = Shard::gradients});
}

TEST_CASE("Sharded.edit_changes_all_ranks_models") {
    Ranks ranks;
    auto model = shard(ranks, make_mlp());
    model.edit([](MlpImpl& mlp) { mlp.parameters()[1].fill_(0.25); });
    CHECK(model->parameters()[1].eq(0.25).all().item<bool>());
    CHECK(ranks.agree(model->parameters()[0]));
    const auto error = message_of(
        [&] { model.edit([](MlpImpl&) { throw ConfigError("RT-C11", "no such file"); }); });
    CHECK(contains(error, "no such file"));
}

TEST_CASE("Sharded.all_ranks_have_the_same_behind_an_edit_that_throws") {
    Ranks ranks;
    for (const auto& [level, share] :
         {std::pair{Shard::gradients, Share::node}, std::pair{Shard::gradients, Share::none},
          std::pair{Shard::parameters, Share::node}}) {
        const auto made = std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(4, 3),
                                                                      torch::nn::BatchNorm1d(3));
        auto model = shard(ranks, made, {.level = level, .share = share});
        const auto error = message_of([&] {
            model.edit([&](torch::nn::SequentialImpl& net) {
                for (const auto& tensors : {net.parameters(), net.buffers()}) {
                    for (const auto& tensor : tensors) {
                        tensor.fill_(ranks.rank() + 1);
                    }
                }
                throw ConfigError("RT-C11", "no such file");
            });
        });
        CHECK(contains(error, "no such file"));
        model.gathered([&](torch::nn::SequentialImpl& net) {
            for (const auto& tensors : {net.parameters(), net.buffers()}) {
                for (const auto& tensor : tensors) {
                    CHECK(tensor.eq(1).all().item<bool>());
                }
            }
        });
    }
}

TEST_CASE("Sharded.weights_of_files_are_loaded_into_the_handle") {
    Ranks ranks;
    const test::Directory directory("sharded-weights");
    const auto make = [](int shift) {
        auto net = std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(4, 3),
                                                               torch::nn::BatchNorm1d(3));
        for (auto& tensor : net->buffers()) {
            tensor.add_(shift);
        }
        return net;
    };
    torch::manual_seed(9);
    const auto saved = make(2);
    const auto path = directory.path() / "w.safetensors";
    if (ranks.rank() == 0) {
        save_weights(path, saved);
    }
    ranks.mpi->barrier();
    auto model = shard(ranks, make(0));
    const auto found = load_weights(model, path);
    CHECK(found.missing.empty());
    require_same_parameters(*model.ptr(), *saved);
    for (std::size_t i = 0; i < saved->buffers().size(); ++i) {
        CHECK(model->buffers()[i].equal(saved->buffers()[i]));
    }
    auto other = shard(ranks, std::make_shared<torch::nn::SequentialImpl>(torch::nn::Linear(4, 3),
                                                                          torch::nn::BatchNorm1d(3),
                                                                          torch::nn::Linear(3, 3)));
    CHECK(contains(message_of([&] { (void)load_weights(other, path); }), "RT-K24"));
    const auto kept = other->parameters().back().clone();
    CHECK(load_weights(other, path, {.strict = false}).missing ==
          std::vector<std::string>{"2.bias", "2.weight"});
    CHECK(other->parameters()[0].equal(saved->parameters()[0]));
    CHECK(other->parameters().back().equal(kept));
}

TEST_CASE("Sharded.gradients_of_gradients") {
    Ranks ranks;
    const auto step = [&](auto& model, auto& optimizer, int i) {
        optimizer.zero_grad();
        const auto x = random(ranks.rank(), i, {5, model->in}).requires_grad_();
        const auto y = model(x);
        const auto slope = torch::autograd::grad({y.square().sum()}, {x}, {}, true, true)[0];
        (y.square().mean() + slope.square().mean()).backward();
        optimizer.step();
    };
    const auto options = torch::optim::AdamWOptions(1e-2);
    compare<MlpImpl, torch::optim::AdamW>(ranks, make_mlp, options, {}, step);
    compare<MlpImpl, torch::optim::AdamW>(ranks, make_mlp, options, {}, step, 0,
                                          {.step_in_backward = true});
}

TEST_CASE("Sharded.ranks_that_differ_are_told_so") {
    Ranks ranks;
    const bool differs = ranks.size() > 1 && ranks.rank() == 1;
    const auto refused = [&](std::int64_t width, const ShardedOptions& options) {
        return code_of([&] {
            (void)shard(ranks, std::make_shared<MlpImpl>(std::vector<std::int64_t>{3, width, 2}),
                        options);
        });
    };
    const std::string expected = ranks.size() > 1 ? "RT-M2" : "";
    CHECK(refused(differs ? 5 : 4, {}) == expected);
    CHECK(refused(4, {.level = differs ? Shard::optimizer : Shard::gradients}) == expected);
    CHECK(refused(4, {.share = differs ? Share::none : Share::node}) == expected);
    CHECK(refused(4, {.slot_bytes = differs ? 4096 : 8192}) == expected);
}

TEST_CASE("Sharded.a_checkpoint_of_another_model_is_refused") {
    Ranks ranks;
    auto model = shard(ranks, make_mlp());
    auto optimizer = prepared(torch::optim::Adam(model->parameters(), 0.1), model);
    mlp_step(ranks)(model, optimizer, 0);
    const MlpImpl other({7, 33, 64, 3});
    checkpoint::Snapshot saved;
    StateWriter out(saved, "m");
    checkpoint::save_module(other, out);
    const auto before = model->parameters()[4].detach().clone();
    CHECK(code_of([&] { checkpoint::load_module(*model.ptr(), StateReader(saved, "m")); }) ==
          "RT-K3");
    CHECK(model->parameters()[4].equal(before));
    ranks.mpi->barrier();
}

TEST_CASE("Sharded.stale_graphs_are_noticed") {
    Ranks ranks;
    auto model = shard(ranks, make_mlp());
    auto optimizer = prepared(torch::optim::SGD(model->parameters(), 0.1), model);
    const auto loss = model(random(ranks.rank(), 0, {5, 7})).square().mean();
    loss.backward({}, /*retain_graph=*/true);
    optimizer.step();
    if (ranks.size() > 1) { // the bare model's fused step does not tell autograd
        CHECK_THROWS_WITH(loss.backward(), doctest::Contains("modified by an inplace operation"));
    }
}

TEST_CASE("Sharded.optimizer_state_is_that_of_whole_parameters") {
    Ranks ranks;
    auto module = make_mlp();
    module->register_parameter("strided", torch::randn({6, 7}).t());
    auto whole = make_mlp();
    whole->register_parameter("strided", torch::randn({6, 7}).t());
    const auto step = [&](auto& model, auto& optimizer, int i) {
        optimizer.zero_grad();
        const auto x = random(ranks.rank(), i, {5, 7});
        (model(x).square().mean() + x.matmul(model->named_parameters()["strided"]).square().mean())
            .backward();
        optimizer.step();
    };
    auto model = shard(ranks, module);
    auto optimizer = prepared(torch::optim::Adam(model->parameters(), 0.1), model);
    auto plain = ranks.prepare(whole);
    auto plain_optimizer = prepared(torch::optim::Adam(plain->parameters(), 0.1), plain);
    step(model, optimizer, 0);
    step(plain, plain_optimizer, 0);
    checkpoint::Snapshot saved;
    checkpoint::Snapshot expected;
    checkpoint::save_optimizer(optimizer, StateWriter(saved, "o"));
    checkpoint::save_optimizer(plain_optimizer, StateWriter(expected, "o"));
    CHECK(saved.values == expected.values);
    for (const auto& [name, tensor] : expected.tensors) { // each rank has its elements of it
        CAPTURE(name);
        if (ranks.size() == 1) {
            CHECK(saved.tensors.at(name).equal(tensor));
            continue;
        }
        const checkpoint::Pieces& mine = saved.pieces.at(name);
        CHECK(mine.shape == tensor.sizes().vec());
        auto covered = torch::zeros({tensor.numel()});
        for (const auto& piece : mine.pieces) {
            const auto part = tensor.reshape({-1}).narrow(0, piece.begin, piece.elements.numel());
            CHECK(piece.elements.equal(part));
            covered.narrow(0, piece.begin, piece.elements.numel()).fill_(1);
        }
        ranks.mpi->all_reduce(covered, ReduceOp::sum);
        CHECK(covered.eq(1).all().item<bool>());
    }
    // What whole optimizers have saved, parts load, and go on alike.
    auto again = shard(ranks, [&] {
        auto copy = make_mlp();
        copy->register_parameter("strided", torch::randn({6, 7}).t());
        return copy;
    }());
    checkpoint::Snapshot model_state;
    StateWriter out(model_state, "m");
    checkpoint::save_module(*whole, out);
    checkpoint::load_module(*again, StateReader(model_state, "m"));
    ranks.mpi->barrier();
    auto loaded = prepared(torch::optim::Adam(again->parameters(), 0.5), again);
    checkpoint::load_optimizer(loaded, StateReader(expected, "o"));
    step(again, loaded, 1);
    step(plain, plain_optimizer, 1);
    require_same_parameters(*whole, *again.ptr());
}

TEST_CASE("Sharded.refuses_what_cannot_work") {
    Ranks ranks;
    const auto refused = [&](auto module, const ShardedOptions& options = {}) {
        return message_of([&] { (void)shard(ranks, module, options); });
    };
    CHECK(contains(refused(make_mlp(), {.slot_bytes = 1}), "RT-C11"));
    CHECK(contains(refused(make_mlp(), {.data_parallel = {.hook = hook::PowerSgd{}}}), "RT-C12"));
    CHECK(contains(
        refused(make_mlp(), {.data_parallel = {.reduction_order = ReductionOrder::micro_batches}}),
        "RT-C12"));
    const auto in_backward = [](const DataParallelOptions& options) {
        return ShardedOptions{.step_in_backward = true, .data_parallel = options};
    };
    CHECK(contains(refused(make_mlp(), in_backward({.check_gradients = true})), "RT-C12"));
    CHECK(contains(refused(make_mlp(), in_backward({.find_unused_parameters = true})), "RT-C12"));
    auto stepping = shard(ranks, make_mlp(), in_backward({}));
    CHECK(contains(message_of([&] { (void)stepping.no_sync(); }), "RT-C12"));
    CHECK(contains(message_of([&] { stepping.clip_grad_norm_(1); }), "RT-C12"));
    if (ranks.size() == 1) {
        return; // the bare model
    }
    const auto step_in_backward = [&] {
        stepping(random(ranks.rank(), 0, {5, 7})).square().mean().backward();
    };
    CHECK(contains(message_of(step_in_backward), "RT-M42")); // no optimizer
    auto all = stepping->parameters();
    all.push_back(torch::randn({2}).requires_grad_());
    CHECK(contains(message_of([&] { (void)prepared(torch::optim::SGD(all, 0.1), stepping); }),
                   "RT-C12"));
    auto steps = prepared(torch::optim::SGD(stepping->parameters(), 0.1), stepping);
    step_in_backward();
    CHECK(contains(message_of(step_in_backward), "RT-M46"));
    GradScaler scaler;
    CHECK(contains(message_of([&] { (void)scaler.step(steps); }), "RT-C12"));
    steps.step();
    step_in_backward();
    steps.step();

    auto integers = make_mlp();
    integers->register_parameter("count", torch::arange(3), false);
    CHECK(contains(refused(integers), "\"count\" is Long"));
    auto complex = make_mlp();
    complex->register_parameter("phase", torch::randn({3}, torch::kComplexFloat));
    CHECK(contains(refused(complex), "RT-M40"));
    auto expanded = make_mlp();
    expanded->register_parameter("expanded", torch::randn({1}).expand({4}), false);
    CHECK(contains(refused(expanded), "share memory"));
    auto shared = make_mlp();
    shared->register_parameter("view", shared->parameters()[0].detach().slice(0, 1, 3));
    CHECK(contains(refused(shared), "shares memory with parameter"));
    auto embedding =
        std::make_shared<torch::nn::EmbeddingImpl>(torch::nn::EmbeddingOptions(4, 4).max_norm(1));
    CHECK(contains(message_of([&] { (void)shard(ranks, embedding); }), "max_norm"));

    auto model = shard(ranks, make_mlp());
    CHECK(contains(
        message_of([&] { (void)prepared(torch::optim::LBFGS(model->parameters()), model); }),
        "RT-M45"));
    CHECK(contains(message_of([&] { model.average_parameters(); }), "RT-C12"));
    const auto pass = [&] { model(random(ranks.rank(), 0, {5, 7})).square().mean().backward(); };
    torch::optim::SGD plain(model->parameters(), 0.1);
    pass();
    plain.step();
    CHECK(contains(message_of(pass), "RT-M42"));
    auto optimizer = prepared(torch::optim::SGD(model->parameters(), 0.1), model);
    optimizer.step();
    CHECK(contains(message_of(pass), "RT-M43"));
    optimizer.zero_grad();
    pass();
    optimizer.param_groups()[0].params().push_back(model->parameters()[0]);
    CHECK(contains(message_of([&] { optimizer.step(); }), "RT-M42"));
    const torch::NoGradGuard no_grad;
    model->parameters()[0].set_data(torch::randn_like(model->parameters()[0]));
    CHECK(contains(message_of([&] { (void)model(random(0, 0, {5, 7})); }), "RT-M41"));
}
