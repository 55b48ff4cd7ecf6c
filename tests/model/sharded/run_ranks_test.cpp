// SPDX-License-Identifier: Apache-2.0
// Whole runs of sharded models: checkpoints are those of any other model.
#include "support/training.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

using namespace rtrain;

namespace {

using Parameters = std::vector<at::Tensor>;

/// Trains up to the report `until`, from wherever the run is, by the engine that `options` choose.
template <class Policy, class Options>
Parameters train(const RunConfig& run, int until, const Options& options) {
    Parameters parameters;
    Trainer<backend::Mpi, data::Sharded, Policy>({.run = run}).fit([&](auto& worker) {
        torch::manual_seed(1);
        auto model = worker.prepare(test::Net(), options);
        auto optimizer = worker.prepare(torch::optim::Adam(model->parameters()));
        int step = 0;
        auto state = State{}.add("net", model).add("optimizer", optimizer).add("step", step);
        (void)worker.restore(state);
        while (step < until) {
            torch::manual_seed(static_cast<std::uint64_t>(10 * step + worker.rank()));
            optimizer.zero_grad();
            model(torch::randn({4, 784})).square().mean().backward();
            optimizer.step();
            ++step;
            worker.report({{"step", step}}, state);
        }
        for (const auto& parameter : model->parameters()) {
            parameters.push_back(parameter.detach().clone());
        }
    });
    return parameters;
}

void require_equal(const Parameters& one, const Parameters& other) {
    REQUIRE(one.size() == other.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
        CAPTURE(i);
        CHECK(one[i].equal(other[i]));
    }
}

} // namespace

TEST_CASE_TEMPLATE("Sharded.either_engine_goes_on_from_the_others_checkpoint", Policy,
                   checkpoint::Sharded, checkpoint::AsyncSharded, checkpoint::Sync) {
    const test::Directory directory("sharded");
    const auto run = [&](const char* name) {
        return RunConfig{.name = name, .storage_path = directory.path()};
    };
    const auto expected = train<Policy>(run("whole"), 4, DataParallelOptions{});
    require_equal(train<Policy>(run("sharded"), 4, ShardedOptions{}), expected);

    (void)train<Policy>(run("there"), 2, ShardedOptions{});
    require_equal(train<Policy>(run("there"), 4, DataParallelOptions{}), expected);
    (void)train<Policy>(run("back"), 2, DataParallelOptions{});
    require_equal(train<Policy>(run("back"), 4, ShardedOptions{}), expected);

    // Between nodes, or where each rank has slots of its own.
    const ShardedOptions divided{.share =
                                     test::ranks_of_nodes().size() > 1 ? Share::node : Share::none};
    (void)train<Policy>(run("divided"), 2, divided);
    require_equal(train<Policy>(run("divided"), 3, DataParallelOptions{}),
                  train<Policy>(run("whole-3"), 3, ShardedOptions{}));
    require_equal(train<Policy>(run("divided"), 4, divided), expected);
}

TEST_CASE("Sharded.checkpoints_of_bfloat16_weights_hold_float32_ones") {
    const test::Directory directory("sharded-bfloat16");
    const auto run = [&](const char* name) {
        return RunConfig{.name = name, .storage_path = directory.path()};
    };
    using checkpoint::Sharded;
    const DataParallelOptions whole{.autocast = torch::kBFloat16};
    const ShardedOptions rounded{.parameter_type = torch::kBFloat16, .data_parallel = whole};
    const auto expected = train<Sharded>(run("whole"), 4, whole);
    (void)train<Sharded>(run("there"), 2, rounded);
    require_equal(train<Sharded>(run("there"), 4, whole), expected);
    (void)train<Sharded>(run("back"), 2, whole);
    (void)train<Sharded>(run("back"), 3, rounded);
    const auto back = train<Sharded>(run("back"), 4, rounded);
    Parameters as_rounded;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        as_rounded.push_back(expected[i].to(back[i].scalar_type()));
    }
    require_equal(back, as_rounded);
}

TEST_CASE("Sharded.a_run_with_the_default_policies_resumes") {
    const test::Directory directory("sharded-default");
    const auto fit = [&](const char* name, int epochs) {
        Parameters parameters;
        Trainer<>({.run = {.name = name, .storage_path = directory.path()}}).fit([&](auto& worker) {
            torch::manual_seed(1);
            auto model = worker.prepare(test::Net(), ShardedOptions{});
            auto optimizer = worker.prepare(torch::optim::AdamW(model->parameters(), 1e-2));
            auto state = State{}.add("net", model).add("optimizer", optimizer);
            for (const int epoch : worker.epochs(epochs, state)) {
                optimizer.zero_grad();
                model(torch::full({2, 784}, worker.rank() + epoch + 1.0))
                    .square()
                    .mean()
                    .backward();
                optimizer.step();
                worker.report({{"epoch", epoch}}, state);
            }
            for (const auto& parameter : model->parameters()) {
                parameters.push_back(parameter.detach().clone());
            }
        });
        return parameters;
    };
    (void)fit("stopped", 2);
    require_equal(fit("stopped", 4), fit("whole", 4));
}

namespace {

/// With which rank 0 alone writes.
struct RefusesParts : checkpoint::Sync {
    static constexpr bool takes_rows = false;
    [[nodiscard]] checkpoint::Snapshot select(checkpoint::Snapshot state,
                                              const checkpoint::Part& part) const {
        if (!state.pieces.empty()) {
            throw CheckpointError("RT-K11", "no parts: " + state.pieces.begin()->first);
        }
        return Sync::select(std::move(state), part);
    }
};

/// Steps as SGD does not.
struct Normalized : torch::optim::SGD {
    using SGD::SGD;
};

} // namespace

TEST_CASE("Sharded.a_policy_that_saves_no_parts_is_refused_before_training") {
    const test::Directory directory("sharded-refused");
    const auto train_with = [&]<class Checkpoint>(Checkpoint /*policy*/, const char* name) {
        return test::message_of([&] {
            (void)train<Checkpoint>(RunConfig{.name = name, .storage_path = directory.path()}, 1,
                                    ShardedOptions{});
        });
    };
    const auto refused = train_with(RefusesParts{}, "refused");
    const bool is_alone = launch::ranks().value_or(1) == 1;
    CHECK(test::contains(refused, "RT-K11") == !is_alone);
    CHECK(test::contains(refused, "optimizer of a sharded model") == !is_alone);
    CHECK(train_with(checkpoint::None{}, "unsaved").empty());
}

TEST_CASE("Sharded.an_optimizer_that_derives_from_torchs_is_refused") {
    const test::Directory directory("sharded-derived");
    Trainer<>({.run = {.name = "r", .storage_path = directory.path()}}).fit([&](auto& worker) {
        auto model = worker.prepare(test::Net(), ShardedOptions{});
        const auto code =
            test::code_of([&] { (void)worker.prepare(Normalized(model->parameters(), 1e-2)); });
        CHECK(code == (worker.size() == 1 ? "" : "RT-M45"));
    });
}

TEST_CASE_TEMPLATE("Sharded.of_what_a_model_ignores_rank_0s_is_saved", Options, DataParallelOptions,
                   ShardedOptions) {
    const test::Directory directory("sharded-ignored");
    const DataParallelOptions ignoring{.ignore = {"in.weight"}};
    Options options;
    if constexpr (std::is_same_v<Options, ShardedOptions>) {
        options.data_parallel = ignoring;
    } else {
        options = ignoring;
    }
    at::Tensor saved;
    const auto fit = [&](auto&& train) {
        Trainer<backend::Mpi, data::Sharded, checkpoint::Sharded>(
            {.run = {.name = "run", .storage_path = directory.path()}})
            .fit([&](auto& worker) {
                auto module = test::Net();
                {
                    const torch::NoGradGuard no_grad;
                    module->in->weight.fill_(worker.rank() + 1);
                }
                auto model = worker.prepare(module, options);
                auto optimizer = worker.prepare(torch::optim::Adam(model->parameters()));
                auto state = State{}.add("net", model).add("optimizer", optimizer);
                const auto values = [&] {
                    const auto& kept = static_cast<torch::optim::AdamParamState&>(
                        *optimizer.state().at(module->in->weight.unsafeGetTensorImpl()));
                    return torch::stack({module->in->weight.detach(), kept.exp_avg()});
                };
                train(worker, model, optimizer, state, values);
            });
    };
    fit([&](auto& worker, auto& model, auto& optimizer, auto& state, const auto& values) {
        model(torch::full({2, 784}, worker.rank() + 1.0)).square().mean().backward();
        optimizer.step();
        worker.report({{"step", 1}}, state);
        saved = values();
        const auto mine = saved.clone();
        worker.broadcast(saved);
        CHECK(mine.equal(saved) == (worker.rank() == 0));
    });
    fit([&](auto& worker, auto& /*model*/, auto& /*optimizer*/, auto& state, const auto& values) {
        CHECK(worker.restore(state));
        CHECK(values().equal(saved));
    });
}
