// SPDX-License-Identifier: Apache-2.0
// Ranks that train alone and average parameters now and then.
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <rtrain/model/local_sgd.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

using namespace rtrain;
using test::Ranks;

namespace {

/// Ranks joined by MPI, with the collectives counted.
struct Counting {
    std::shared_ptr<backend::Mpi> mpi;
    int reductions = 0;
    int broadcasts = 0;
    [[nodiscard]] int rank() const { return mpi->rank(); }
    [[nodiscard]] int size() const { return mpi->size(); }
    void all_reduce(at::Tensor& tensor, ReduceOp op) {
        ++reductions;
        mpi->all_reduce(tensor, op);
    }
    void broadcast(at::Tensor& tensor, int root) {
        ++broadcasts;
        mpi->broadcast(tensor, root);
    }
};

torch::Tensor loss_of(const torch::Tensor& output, const data::Batch& batch) {
    return torch::cross_entropy_loss(output, batch["label"]);
}

/// This rank's part of a step's 24 rows.
data::Batch batch_of(const Ranks& ranks, int step) {
    static const auto rows = test::fashion_mnist(480);
    return rows.rows(torch::arange(24 * step + ranks.rank(), 24 * (step + 1), ranks.size()));
}

/// Trains 12 steps and returns the parameters after each; `after` is called behind a step.
template <class Model, class After>
std::vector<torch::Tensor> train(Ranks& ranks, Model& model, double momentum, After&& after) {
    torch::optim::SGD optimizer(model->parameters(),
                                torch::optim::SGDOptions(0.1).momentum(momentum));
    std::vector<torch::Tensor> history;
    for (int step = 0; step < 12; ++step) {
        auto batch = batch_of(ranks, step);
        optimizer.zero_grad();
        loss_of(model(batch["image"]), batch).backward();
        optimizer.step();
        after();
        history.push_back(test::flat(*model));
    }
    return history;
}

test::Net make_net(bool norm = false) {
    torch::manual_seed(4);
    return test::Net(0.0, norm);
}

} // namespace

TEST_CASE("LocalSgd.with_period_1_is_gradient_averaging") {
    Ranks ranks;
    auto usual = ranks.prepare(make_net().ptr());
    const auto expected = train(ranks, usual, 0.0, [] {});
    auto model = ranks.prepare(make_net().ptr());
    LocalSgd local(model, {.period = 1});
    const auto found = train(ranks, model, 0.0, [&] { local.step(); });
    for (std::size_t step = 0; step < found.size(); ++step) {
        CHECK(found[step].allclose(expected[step], 1e-5, 1e-6));
        CHECK(ranks.agree(found[step]));
    }
}

TEST_CASE("LocalSgd.averages_gradients_then_parameters_now_and_then") {
    Ranks ranks;
    auto backend = std::make_shared<Counting>(Counting{ranks.mpi});
    DataParallel<test::NetImpl, Counting> model(backend, make_net().ptr(), {});
    const int of_step = static_cast<int>(model.bucket_count());
    std::vector<int> reductions;
    std::vector<torch::Tensor> history;
    {
        LocalSgd local(model, {.warmup_steps = 4, .period = 3});
        backend->reductions = backend->broadcasts = 0;
        history = train(ranks, model, 0.9, [&] {
            local.step();
            reductions.push_back(std::exchange(backend->reductions, 0));
        });
    }
    const int once = ranks.size() > 1 ? 1 : 0; // all parameters in one message
    const int g = of_step;
    CHECK(reductions == std::vector<int>{g, g, g, g, 0, 0, once, 0, 0, once, 0, 0});
    CHECK(backend->broadcasts == 0);
    for (std::size_t step = 0; step < history.size(); ++step) {
        const bool together = step < 4 || step == 6 || step == 9 || ranks.size() == 1;
        CHECK(ranks.agree(history[step]) == together);
    }
    // Behind it, gradients are averaged again.
    model.average_parameters();
    backend->reductions = 0;
    const auto last = train(ranks, model, 0.0, [] {});
    CHECK(backend->reductions == 12 * of_step);
    CHECK(ranks.agree(last.back()));
}

TEST_CASE("LocalSgd.an_averaging_is_the_mean_of_what_ranks_have") {
    Ranks ranks;
    auto net = make_net(true);
    auto model = ranks.prepare(net.ptr());
    LocalSgd local(model, {.period = 100});
    (void)train(ranks, model, 0.9, [&] { local.step(); });
    const auto mine = test::flat(*net);
    const auto expected = ranks.mpi->all_gather(mine).mean(0);
    CHECK(ranks.agree(mine) == (ranks.size() == 1));
    model.average_parameters();
    CHECK(test::flat(*net).allclose(expected, 1e-5, 1e-6)); // with running means
    CHECK(ranks.agree(test::flat(*net)));
    CHECK(net->batch_norm->num_batches_tracked.item<int>() == 12);
}

TEST_CASE("LocalSgd.a_stopped_run_goes_on_to_the_same_bits") {
    const test::Directory directory("local-sgd");
    const auto run = [&](const std::string& name, int stop) {
        torch::Tensor parameters;
        Trainer<> trainer({.run = {.name = name, .storage_path = directory.path()},
                           .datasets = {{"train", test::fashion_mnist(480)}}});
        const auto code = test::code_of([&] {
            trainer.fit([&](auto& worker) {
                auto model = worker.prepare(make_net());
                torch::optim::SGD optimizer(model->parameters(), 0.1);
                LocalSgd local(model, {.warmup_steps = 3, .period = 2});
                int step = 0;
                auto state = State{}
                                 .add("model", model)
                                 .add("optimizer", optimizer)
                                 .add("local", local)
                                 .add("step", step);
                auto batches = worker.dataset_shard("train").batches(
                    {.size = 48 / worker.size(), .shuffle = true});
                for ([[maybe_unused]] const int epoch : worker.epochs(1, state)) {
                    for (auto& batch : batches) {
                        optimizer.zero_grad();
                        loss_of(model(batch["image"]), batch).backward();
                        optimizer.step();
                        local.step();
                        if (++step == 2 || step == 5) { // in the warm-up, behind an averaging
                            worker.report({{"step", step}}, state);
                        }
                        if (step == stop) {
                            throw std::runtime_error("stopped on purpose");
                        }
                    }
                }
                parameters = test::flat(*model);
            });
        });
        CHECK(code == (stop > 0 ? "RT-T1" : ""));
        return parameters;
    };
    const auto expected = run("whole", 0);
    for (const int stop : {2, 4, 6}) {
        const auto name = "stop-" + std::to_string(stop);
        (void)run(name, stop);
        CHECK(run(name, 0).equal(expected));
    }
}

TEST_CASE("LocalSgd.a_time_that_is_up_ends_the_run_between_two_reports") {
    const test::Directory directory("local-sgd-time");
    int step = 0;
    Trainer<> trainer(
        {.run = {.name = "r", .storage_path = directory.path(), .stop = {stop::MaxTime{0.5}}},
         .datasets = {{"train", test::fashion_mnist(480)}}});
    trainer.fit([&](auto& worker) {
        auto model = worker.prepare(make_net());
        torch::optim::SGD optimizer(model->parameters(), 0.1);
        LocalSgd local(model, {.warmup_steps = 0, .period = 2});
        auto state = State{}.add("model", model).add("optimizer", optimizer).add("local", local);
        auto batches = worker.dataset_shard("train").batches({.size = 1});
        for ([[maybe_unused]] const int epoch : worker.epochs(1, state)) {
            for (auto& batch : batches) {
                optimizer.zero_grad();
                loss_of(model(batch["image"]), batch).backward();
                optimizer.step();
                local.step();
                std::this_thread::sleep_for(std::chrono::milliseconds(40));
                ++step;
            }
            worker.report({{"step", step}}, state);
        }
    });
    CHECK(step < 480 / launch::ranks().value_or(1));
}

TEST_CASE("LocalSgd.refuses_impossible_periods") {
    Ranks ranks;
    auto model = ranks.prepare(make_net().ptr());
    CHECK(test::code_of([&] { LocalSgd local(model, {.period = 0}); }) == "RT-M20");
    CHECK(test::code_of([&] { LocalSgd local(model, {.warmup_steps = -1}); }) == "RT-M20");
}
