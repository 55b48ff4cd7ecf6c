// SPDX-License-Identifier: Apache-2.0
// Averages of the weights of whole and sharded models: on different numbers of ranks, with batch
// norms, and at the wrong time.
#include "fit_models.hpp"

#include <rtrain/fit.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

using namespace rtrain;
using test::code_of;
using test::contains;

namespace fit_test {
namespace {

using Preparation = decltype(FitOptions::prepare);

const std::vector<Preparation>& preparations() {
    static const std::vector<Preparation> all{
        DataParallelOptions{},
        ShardedOptions{},
        ShardedOptions{.share = Share::none},
        ShardedOptions{.level = Shard::gradients, .share = Share::none},
        ShardedOptions{.level = Shard::optimizer, .share = Share::none},
        ShardedOptions{.step_in_backward = true}};
    return all;
}

/// 21 parameters, of which ranks have parts of different sizes.
struct Normed : torch::nn::Module {
    explicit Normed(std::int64_t columns = 5) {
        torch::manual_seed(1);
        net = register_module(
            "net", torch::nn::Sequential(torch::nn::Linear(columns, 3), torch::nn::BatchNorm1d(3)));
    }
    at::Tensor forward(const at::Tensor& x) { return net->forward(x); }
    torch::nn::Sequential net{nullptr};
};

at::Tensor inputs(int number) {
    torch::manual_seed(static_cast<std::uint64_t>(10 + number));
    return torch::randn({4, 5});
}

/// The weights, Ema's and Swa's, with buffers.
at::Tensor values(const auto& model, Ema& ema, Swa& swa) {
    std::vector<at::Tensor> all{test::flat(*model)};
    {
        const auto averaged = ema.applied();
        all.push_back(test::flat(*model));
    }
    const auto averaged = swa.applied();
    all.push_back(test::flat(*model));
    return torch::stack(all);
}

/// A run that calls `use(worker, model, ema, swa, state)`.
template <class Backend = backend::Mpi>
Result with_averages(const std::filesystem::path& directory, const std::string& name,
                     const Preparation& preparation, const auto& use) {
    Trainer<Backend> trainer({.run = {.name = name, .storage_path = directory}});
    return trainer.fit([&](auto& worker) {
        std::visit(
            [&](const auto& options) {
                auto model = worker.prepare(std::make_shared<Normed>(), options);
                Ema ema(model, {.decay = 0.5});
                Swa swa(model);
                const auto state = State{}.add("model", model).add("ema", ema).add("swa", swa);
                use(worker, model, ema, swa, state);
            },
            preparation);
    });
}

constexpr auto train = [](auto& worker, auto& model, Ema& ema, Swa& swa, const State& state) {
    auto optimizer = worker.prepare(torch::optim::SGD(model->parameters(), 0.1));
    for (const int step : worker.epochs(3, state)) {
        model(inputs(step)).pow(3).mean().backward();
        optimizer.step();
        optimizer.zero_grad();
        ema.update();
        swa.update();
        worker.report({{"step", step}}, state);
    }
};

struct Averages {
    Checkpoint checkpoint;
    at::Tensor values;
};

template <class Backend>
Averages trained(const std::filesystem::path& directory, const std::string& name,
                 const Preparation& preparation) {
    at::Tensor found;
    const Result result = with_averages<Backend>(
        directory, name, preparation,
        [&](auto& worker, auto& model, Ema& ema, Swa& swa, const State& state) {
            train(worker, model, ema, swa, state);
            found = values(model, ema, swa);
        });
    return {result.checkpoint.value(), found};
}

template <class Backend>
at::Tensor loaded(const std::filesystem::path& directory, const std::string& name,
                  const Preparation& preparation, const Checkpoint& from) {
    at::Tensor found;
    with_averages<Backend>(
        directory, name, preparation,
        [&](auto& /*worker*/, auto& model, Ema& ema, Swa& swa, const State& state) {
            state.load_from(from);
            found = values(model, ema, swa);
        });
    return found;
}

} // namespace

TEST_CASE("Fit.averages_are_loaded_on_a_different_number_of_ranks" * doctest::timeout(300)) {
    const test::Directory directory("fit-averages-ranks");
    const std::filesystem::path& path = directory.path();
    const std::filesystem::path own = own_directory(path);
    for (std::size_t i = 0; i < preparations().size(); ++i) {
        CAPTURE(i);
        const Preparation& preparation = preparations()[i];
        const std::string name = std::to_string(i);
        const Averages of_all = trained<backend::Mpi>(path, "ranks-" + name, preparation);
        CHECK(!of_all.values[0].equal(of_all.values[1]));
        CHECK(!of_all.values[1].equal(of_all.values[2]));
        CHECK(loaded<backend::Mpi>(path, "whole-" + name, DataParallelOptions{}, of_all.checkpoint)
                  .equal(of_all.values));
        CHECK(loaded<backend::Local>(own, "alone-" + name, preparation, of_all.checkpoint)
                  .equal(of_all.values));
        const Averages of_one = trained<backend::Local>(own, "one-" + name, preparation);
        const Checkpoint rank_0_s(path / "0" / of_one.checkpoint.path.lexically_relative(own));
        CHECK(loaded<backend::Mpi>(path, "spread-" + name, preparation, rank_0_s)
                  .equal(of_one.values));
    }
}

TEST_CASE("Fit.averages_in_use_are_not_updated_or_saved" * doctest::timeout(120)) {
    const test::Directory directory("fit-averages-use");
    for (std::size_t i = 0; i < 3; ++i) {
        CAPTURE(i);
        const std::string name = std::to_string(i);
        const Result result =
            with_averages(directory.path(), name, preparations()[i],
                          [&](auto& worker, auto& model, Ema& ema, Swa& swa, const State& state) {
                              train(worker, model, ema, swa, state);
                              const at::Tensor before = values(model, ema, swa);
                              {
                                  const auto averaged = ema.applied();
                                  CHECK(code_of([&] { ema.update(); }) == "RT-F82");
                                  CHECK(code_of([&] { (void)ema.applied(); }) == "RT-F82");
                                  const auto other = swa.applied();
                                  CHECK(test::flat(*model).equal(before[2]));
                              }
                              CHECK(values(model, ema, swa).equal(before));
                          });
        CHECK(contains(test::message_of([&] {
                           with_averages(directory.path(), "saves-" + name, preparations()[i],
                                         [&](auto& worker, auto& /*model*/, Ema& ema, Swa& /*swa*/,
                                             const State& state) {
                                             const auto averaged = ema.applied();
                                             worker.report({{"step", 0}}, state);
                                         });
                       }),
                       "[RT-F82]"));
        Trainer<> trainer({.run = {.name = "other-" + name, .storage_path = directory.path()}});
        trainer.fit([&](auto& worker) {
            std::visit(
                [&](const auto& options) {
                    auto model = worker.prepare(std::make_shared<Normed>(4), options);
                    Ema ema(model);
                    CHECK(code_of([&] {
                              State{}.add("ema", ema).load_from(result.checkpoint.value());
                          }) == "RT-K3");
                },
                preparations()[i]);
        });
    }
}

TEST_CASE("Fit.statistics_of_batch_norms_of_sharded_models" * doctest::timeout(120)) {
    const test::Directory directory("fit-statistics");
    at::Tensor expected;
    for (std::size_t i = 0; i < preparations().size(); ++i) {
        CAPTURE(i);
        with_averages(directory.path(), std::to_string(i), preparations()[i],
                      [&](auto& worker, auto& model, Ema& ema, Swa& swa, const State& state) {
                          train(worker, model, ema, swa, state);
                          const auto averaged = swa.applied();
                          const std::vector<at::Tensor> batches{inputs(worker.rank()), inputs(7)};
                          update_batch_norm(worker, *model, batches, [&](const at::Tensor& batch) {
                              model->forward(batch);
                          });
                          const at::Tensor found = test::flat(*model);
                          expected = i == 0 ? found : expected;
                          CHECK(found.equal(expected));
                      });
    }
}

} // namespace fit_test
