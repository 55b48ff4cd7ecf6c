// SPDX-License-Identifier: Apache-2.0
// What holds on GPUs and on the fake ones alike.
#include "gpu/nccl_ranks.hpp"
#include "support/training.hpp"

#include <rtrain/backend/collectives.hpp>
#include <rtrain/backend/nccl.hpp>
#include <rtrain/backend/the_backend.hpp>
#include <rtrain/testing/backend.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <sstream>
#include <string>

using namespace rtrain;
using test::code_of;
using test::contains;
using test::message_of;
using test::options_in;
using test::scaling;

namespace {

backend::Nccl started(std::chrono::milliseconds timeout = std::chrono::minutes(1)) {
    backend::Nccl nccl({.timeout = timeout,
                        .mpi = {.timeout = std::chrono::seconds(60),
                                .failure_patience = std::chrono::seconds(10)}});
    nccl.start(scaling());
    return nccl;
}

/// On as many GPUs as there are.
struct OnTheseGpus : backend::Nccl {
    using Nccl::Nccl;
    void start(const ScalingConfig& /*scaling*/) { Nccl::start(scaling()); }
};

using GpuWorker = Trainer<backend::Nccl>::WorkerType;

backend::Nccl impatient() {
    return backend::Nccl({.timeout = std::chrono::seconds(3),
                          .mpi = {.timeout = std::chrono::seconds(30),
                                  .failure_patience = std::chrono::seconds(10)}});
}

} // namespace

RTRAIN_TEST_BACKEND(Nccl, OnTheseGpus({.timeout = std::chrono::minutes(1),
                                       .mpi = {.timeout = std::chrono::seconds(60),
                                               .failure_patience = std::chrono::seconds(10)}}));

TEST_CASE("Nccl.types_that_it_reduces_and_refuses" * doctest::timeout(60)) {
    auto nccl = started();
    const int size = nccl.size();
    auto flags = torch::zeros({size}, torch::kBool);
    flags[nccl.rank()] = true;
    flags = flags.to(nccl.device());
    nccl.all_reduce(flags, ReduceOp::sum); // any
    CHECK(flags.cpu().all().item<bool>());
    for (const auto type : {torch::kHalf, torch::kBFloat16, torch::kChar}) {
        auto ones = torch::ones({1000}, type).to(nccl.device());
        nccl.all_reduce(ones, ReduceOp::sum);
        CHECK(ones.cpu().eq(size).all().item<bool>());
    }
    if (size > 1) { // else there is nothing to reduce, and nothing is looked at
        auto integers = torch::ones({2}, torch::kLong).to(nccl.device());
        CHECK(code_of([&] { nccl.all_reduce(integers, ReduceOp::mean); }) == "RT-X7");
        auto shorts = torch::ones({2}, torch::kShort).to(nccl.device());
        CHECK(code_of([&] { nccl.all_reduce(shorts, ReduceOp::sum); }) == "RT-N8");
    }
    (void)nccl.finish({});
}

TEST_CASE("Nccl.broadcasts_transposed_tensors_of_types_that_it_cannot_reduce" *
          doctest::timeout(60)) {
    auto nccl = started();
    const int last = nccl.size() - 1;
    for (const auto type : {torch::kFloat, torch::kShort, torch::kBool, torch::kUInt16}) {
        auto tensor = torch::full({3, 5}, nccl.rank() == last ? 1 : 0).to(type).to(nccl.device());
        auto transposed = tensor.t();
        nccl.broadcast(transposed, last);
        CHECK(tensor.cpu().to(torch::kFloat).eq(1).all().item<bool>());
    }
    rtrain::detail::TheBackend any(std::make_shared<backend::Nccl>(nccl));
    CHECK(rtrain::detail::broadcast(any, "hello", 0) == "hello");
    (void)nccl.finish({});
}

TEST_CASE("Nccl.rows_of_a_reduction_and_what_cannot_be_one" * doctest::timeout(60)) {
    auto nccl = started();
    const std::int64_t size = nccl.size();
    for (const std::int64_t columns : {0, 1, 300'001}) { // the last: in pieces
        const auto columns_first = torch::full({columns, size}, nccl.rank() + 1.0);
        const auto rows = columns_first.to(nccl.device()).t(); // not contiguous
        const auto mean = nccl.reduce_scatter(rows, ReduceOp::mean);
        CHECK((mean.sizes() == at::IntArrayRef{columns}));
        CHECK(mean.cpu().eq((static_cast<double>(size) + 1) / 2).all().item<bool>());
    }
    auto flags = torch::zeros({size, 3}, torch::kBool);
    flags[nccl.rank()] = true;
    CHECK(nccl.reduce_scatter(flags.to(nccl.device()), ReduceOp::sum).cpu().all().item<bool>());
    const auto too_many = torch::ones({size + 1, 2}).to(nccl.device());
    CHECK(code_of([&] { (void)nccl.reduce_scatter(too_many, ReduceOp::sum); }) == "RT-X13");
    if (size > 1) {
        const auto integers = torch::ones({size, 2}, torch::kLong).to(nccl.device());
        CHECK(code_of([&] { (void)nccl.reduce_scatter(integers, ReduceOp::mean); }) == "RT-X7");
        const auto meta = torch::ones({size, 2}, torch::kMeta);
        CHECK(code_of([&] { (void)nccl.reduce_scatter(meta, ReduceOp::sum); }) == "RT-N7");
    }
    (void)nccl.finish({});
}

TEST_CASE("Nccl.async_all_reduces_wait_for_their_tensor_and_are_waited_for" *
          doctest::timeout(120)) {
    auto nccl = started();
    constexpr int buckets = 4;
    std::vector<torch::Tensor> memory;
    std::vector<backend::Nccl::Handle> reductions;
    for (int i = 0; i < buckets; ++i) {
        memory.push_back(torch::zeros({100000 + i}).to(nccl.device()));
        reductions.push_back(nccl.all_reduce_async(memory.back(), ReduceOp::sum));
    }
    for (int step = 1; step <= 20; ++step) {
        for (std::size_t i = 0; i < buckets; ++i) {
            memory[i].fill_(step * (nccl.rank() + 1)); // the reduction must come behind this
            reductions[i].start();
            reductions[i].poll();
        }
        torch::Tensor total = torch::zeros({1}).to(nccl.device());
        for (std::size_t i = 0; i < buckets; ++i) {
            reductions[i].wait();
            total += memory[i].min() + memory[i].max(); // and this behind the reduction
        }
        const int sum = step * nccl.size() * (nccl.size() + 1) / 2;
        REQUIRE(total.item<float>() == doctest::Approx(2 * buckets * sum));
    }
    (void)nccl.finish({});
}

TEST_CASE("Nccl.rows_are_scattered_and_gathered_beside_what_the_device_computes" *
          doctest::timeout(120)) {
    auto nccl = started();
    const int size = nccl.size();
    for (const at::Device device : {nccl.device(), at::Device(at::kCPU)}) {
        const auto type = at::TensorOptions(device);
        at::Tensor rows = torch::zeros({size, 50'000}, type);
        at::Tensor row = torch::zeros({50'000}, type);
        at::Tensor all = torch::zeros({size, 50'000}, type);
        auto scatter = nccl.reduce_scatter_async(rows, row, ReduceOp::sum);
        auto gather = nccl.all_gather_async(row, all);
        for (int step = 1; step <= 10; ++step) {
            for (int i = 0; i < size; ++i) {
                rows[i].fill_(step * (nccl.rank() + 1) * (i + 1)); // scattering comes behind this
            }
            scatter.start();
            scatter.wait();
            row += 1; // and this after it, and before gathering
            gather.start();
            gather.poll();
            gather.wait();
            for (int i = 0; i < size; ++i) {
                const int sum = step * size * (size + 1) / 2 * (i + 1) + 1;
                REQUIRE(all[i].min().item<float>() == doctest::Approx(sum));
                REQUIRE(all[i].max().item<float>() == doctest::Approx(sum));
            }
        }
        at::Tensor short_row = torch::zeros({3}, type);
        CHECK(code_of([&] { (void)nccl.reduce_scatter_async(rows, short_row, ReduceOp::sum); }) ==
              "RT-X13");
        CHECK(code_of([&] { (void)nccl.all_gather_async(short_row, all); }) == "RT-X13");
    }
    (void)nccl.finish({});
}

TEST_CASE("Nccl.trains_like_one_process" * doctest::timeout(120)) {
    const test::Directory directory("nccl-training");
    torch::manual_seed(7);
    const auto x = torch::randn({64, 784});
    const auto y = torch::randint(10, {64});
    TrainerOptions options = options_in(directory);
    options.datasets.emplace("train", data::from_tensors({{"x", x}, {"y", y}}));
    torch::Tensor trained;
    Trainer<backend::Nccl> trainer(std::move(options), impatient());
    trainer.fit([&](GpuWorker& worker) {
        CHECK(worker.device().is_cuda());
        torch::manual_seed(static_cast<std::uint64_t>(worker.rank())); // rank 0's parameters count
        test::Net net;
        auto model = worker.prepare(net, {.bucket_bytes = 4096, .first_bucket_bytes = 1024});
        torch::optim::Adam optimizer(net->parameters(), 1e-3);
        auto state = State{}.add("model", model).add("optimizer", optimizer);
        for (int epoch : worker.epochs(3, state)) {
            for (auto& batch : worker.dataset_shard("train").batches({.size = 8})) {
                CHECK(batch["x"].device() == worker.device());
                optimizer.zero_grad();
                torch::cross_entropy_loss(model(batch["x"]), batch["y"]).backward();
                optimizer.step();
            }
            worker.report({{"epoch", epoch}}, state);
        }
        trained = test::flat(*net).cpu();
    });
    int rank = 0;
    int size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    torch::manual_seed(0);
    test::Net reference;
    torch::optim::Adam optimizer(reference->parameters(), 1e-3);
    for (int epoch = 0; epoch < 3; ++epoch) {
        for (std::int64_t begin = 0; begin < 64; begin += 8 * size) {
            // Rank r of n reads rows r, r + n, ...: together the ranks' batches are these rows.
            const auto rows = torch::arange(begin, begin + 8 * size);
            optimizer.zero_grad();
            torch::cross_entropy_loss(reference(x.index_select(0, rows)), y.index_select(0, rows))
                .backward();
            optimizer.step();
        }
    }
    CHECK(trained.allclose(test::flat(*reference), 1e-3, 1e-4));
    CHECK(rank < size);
}

TEST_CASE("Nccl.steps_are_logged_from_the_device" * doctest::timeout(60)) {
    const test::Directory directory("nccl-steps");
    Trainer<backend::Nccl> trainer(options_in(directory), impatient());
    trainer.fit([](GpuWorker& worker) {
        auto loss = torch::zeros({1}, at::TensorOptions().device(worker.device()));
        for (int step = 1; step <= 100; ++step) {
            loss = loss + 1; // a new tensor each time
            worker.log({{"loss", loss}, {"step twice", 2 * step}});
        }
    });
    std::istringstream lines(test::read(directory.path() / "run" / "steps.jsonl"));
    int step = 0;
    for (std::string line; std::getline(lines, line);) {
        const auto logged = json::parse(line).as_object();
        CHECK(logged.at("loss") == static_cast<double>(++step));
        CHECK(logged.at("step twice") == 2.0 * step);
    }
    CHECK(step == 100);
}

TEST_CASE("Nccl.a_rank_that_throws_ends_the_others_in_bounded_time" * doctest::timeout(60)) {
    const test::Directory directory("nccl-throw");
    Trainer<backend::Nccl> trainer(options_in(directory), backend::Nccl{});
    const auto begun = std::chrono::steady_clock::now();
    std::string message;
    try {
        trainer.fit([](GpuWorker& worker) {
            auto tensor = torch::ones({1000}).to(worker.device());
            worker.all_reduce(tensor);
            if (worker.rank() == worker.size() - 1) {
                throw std::runtime_error("no more data");
            }
            for (int step = 0; step < 3; ++step) {
                worker.all_reduce(tensor);
                (void)tensor[0].item<float>(); // the host waits for the GPU, which waits for a peer
            }
        });
    } catch (const TrainingFailedError& error) {
        message = error.what();
        CHECK(error.worker_failures().size() == 1);
    }
    CHECK(contains(message, "no more data"));
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
}

TEST_CASE("Nccl.a_rank_that_throws_ends_backward_passes_of_the_others" * doctest::timeout(60)) {
    const test::Directory directory("nccl-backward");
    Trainer<backend::Nccl> trainer(options_in(directory), backend::Nccl{});
    std::map<int, std::string> failures;
    try {
        trainer.fit([](GpuWorker& worker) {
            test::Net net;
            auto model = worker.prepare(net);
            const auto x = torch::ones({4, 784}).to(worker.device());
            for (int step = 0; step < 100; ++step) {
                if (step == 3 && worker.rank() == worker.size() - 1) {
                    throw std::runtime_error("no fourth step");
                }
                auto loss = model(x).sum();
                loss.backward();
                (void)loss.item<float>();
            }
        });
    } catch (const TrainingFailedError& error) {
        failures = error.worker_failures();
    }
    // What the hooks threw in autograd's threads is known as the other rank's fault.
    REQUIRE(failures.size() == 1);
    CHECK(contains(failures.begin()->second, "no fourth step"));
}

TEST_CASE("Nccl.a_rank_that_throws_is_restarted_in_its_process" * doctest::timeout(60)) {
    const test::Directory directory("nccl-restart");
    TrainerOptions options = options_in(directory);
    options.run.failure = {.max_failures = 2, .backoff_s = 0};
    Trainer<backend::Nccl> trainer(std::move(options), backend::Nccl{});
    int attempts = 0;
    int begun_with = -1;
    const Result result = trainer.fit([&](GpuWorker& worker) {
        ++attempts;
        int step = 0;
        auto state = State{}.add("step", step);
        worker.restore(state);
        begun_with = step;
        while (step < 4) {
            if (step == 2 && attempts == 1 && worker.rank() == worker.size() - 1) {
                throw std::runtime_error("bad luck");
            }
            auto tensor = torch::ones({1000}).to(worker.device());
            worker.all_reduce(tensor);
            const bool reduced = tensor[0].item<float>() == static_cast<float>(worker.size());
            CHECK((reduced || attempts == 1)); // where a peer has failed, it is not, and is dropped
            ++step;
            worker.report({{"step", step}}, state);
        }
    });
    CHECK(attempts == 2);
    CHECK(begun_with == 2);
    CHECK(result.metrics.at("step") == 4);
}

TEST_CASE("Nccl.a_rank_that_returns_early_is_named" * doctest::timeout(60)) {
    const test::Directory directory("nccl-uneven");
    Trainer<backend::Nccl> trainer(options_in(directory), backend::Nccl{});
    const auto message = message_of([&] {
        trainer.fit([](GpuWorker& worker) {
            auto tensor = torch::ones({1000}).to(worker.device());
            for (int step = 0; step < 3 + (worker.rank() == 0 ? 1 : 0); ++step) {
                worker.all_reduce(tensor);
            }
            if (worker.size() == 1) {
                throw std::runtime_error("alone: RT-X4");
            }
        });
    });
    CHECK(contains(message, "RT-X4"));
}

TEST_CASE("Nccl.a_rank_that_stays_away_times_out" * doctest::timeout(60)) {
    const test::Directory directory("nccl-timeout");
    Trainer<backend::Nccl> trainer(options_in(directory), impatient());
    const auto message = message_of([&] {
        trainer.fit([](GpuWorker& worker) {
            auto tensor = torch::ones({1000}).to(worker.device());
            worker.all_reduce(tensor);
            if (worker.rank() == 0) {
                worker.all_reduce(tensor);
                (void)tensor[0].item<float>();
            } else {
                std::this_thread::sleep_for(std::chrono::seconds(5)); // the timeout is 3 s
            }
            worker.barrier();
            if (worker.size() == 1) {
                throw std::runtime_error("alone: rank 0 waited in all_reduce RT-N6");
            }
        });
    });
    CHECK(contains(message, "RT-N6"));
    CHECK(contains(message, "rank 0 waited"));
    CHECK(contains(message, "all_reduce"));
}

TEST_CASE("Nccl.tensors_elsewhere_and_handles_of_ended_runs_are_refused" * doctest::timeout(60)) {
    auto nccl = started();
    auto tensor = torch::ones({3}).to(nccl.device());
    auto handle = nccl.all_reduce_async(tensor, ReduceOp::sum);
    if (nccl.size() > 1) {
        torch::Tensor undefined;
        CHECK(code_of([&] { nccl.all_reduce(undefined, ReduceOp::sum); }) == "RT-X6");
        auto meta = torch::ones({3}, torch::kMeta);
        CHECK(code_of([&] { nccl.all_reduce(meta, ReduceOp::sum); }) == "RT-N7");
    }
    (void)nccl.finish({});
    if (nccl.size() > 1) {
        CHECK(code_of([&] { handle.start(); }) == "RT-N9");
    }
    nccl.start(scaling()); // and a new run begins afresh
    nccl.all_reduce(tensor, ReduceOp::sum);
    CHECK(tensor.cpu().eq(nccl.size()).all().item<bool>());
    (void)nccl.finish({});
}

namespace {

constexpr int captured_steps = 8;

/// Trains, and returns the parameters and all losses.
template <class Optimizer, class Options>
std::pair<torch::Tensor, std::vector<double>> train_captured(const test::Directory& directory,
                                                             bool captures, Options adam) {
    TrainerOptions options = test::options_in(directory);
    options.run.name = captures ? "captured" : "plain";
    torch::manual_seed(11);
    const auto x = torch::randn({4 * 2 * captured_steps, 784});
    const auto y = torch::randint(10, {4 * 2 * captured_steps});
    options.datasets.emplace("train", data::from_tensors({{"x", x}, {"y", y}}));
    std::pair<torch::Tensor, std::vector<double>> trained;
    Trainer<backend::Nccl> trainer(std::move(options), backend::Nccl{});
    trainer.fit([&](auto& worker) {
        torch::manual_seed(7);
        test::Net net;
        auto model = worker.prepare(net, {.bucket_bytes = 4096, .first_bucket_bytes = 1024});
        auto optimizer = worker.prepare(Optimizer(net->parameters(), adam));
        const auto step = [&](const at::Tensor& images, const at::Tensor& labels) {
            optimizer.zero_grad();
            auto loss = torch::cross_entropy_loss(model(images), labels);
            loss.backward();
            optimizer.step();
            return loss.detach();
        };
        auto captured = worker.capture(step);
        int number = 0;
        for (auto& batch : worker.dataset_shard("train").batches({.size = 4, .drop_last = true})) {
            auto loss = captures ? captured(batch["x"], batch["y"]) : step(batch["x"], batch["y"]);
            trained.second.push_back(loss.template item<double>());
            auto& group = optimizer.param_groups()[0].options(); // a schedule
            group.set_lr(group.get_lr() * 0.9);
            ++number;
        }
        CHECK(number * worker.size() >= 2 * captured_steps);
        trained.first = test::flat(*net).cpu().clone();
    });
    return trained;
}

} // namespace

TEST_CASE("NcclGraph.a_captured_step_trains_like_the_step_itself" * doctest::timeout(240)) {
    const auto compare = [](const auto& plain, const auto& captured) {
        REQUIRE(captured.second.size() == plain.second.size());
        for (std::size_t i = 0; i < plain.second.size(); ++i) {
            CAPTURE(i);
            // A graph has the learning rate in float32.
            CHECK(captured.second[i] == doctest::Approx(plain.second[i]).epsilon(1e-5));
        }
        CHECK(captured.first.allclose(plain.first, 1e-4, 1e-6));
    };
    {
        const test::Directory directory("nccl-graph-adam");
        const torch::optim::AdamWOptions options(1e-2);
        compare(train_captured<torch::optim::AdamW>(directory, false, options),
                train_captured<torch::optim::AdamW>(directory, true, options));
    }
    {
        const test::Directory directory("nccl-graph-sgd");
        const auto options = torch::optim::SGDOptions(1e-2).momentum(0.9).weight_decay(1e-3);
        compare(train_captured<torch::optim::SGD>(directory, false, options),
                train_captured<torch::optim::SGD>(directory, true, options));
    }
}

TEST_CASE("NcclGraph.what_a_graph_cannot_have_is_refused" * doctest::timeout(240)) {
    const test::Directory directory("nccl-graph-refused");
    Trainer<backend::Nccl> trainer(test::options_in(directory), backend::Nccl{});
    trainer.fit([&](auto& worker) {
        test::Net net;
        auto model = worker.prepare(net);
        auto optimizer = worker.prepare(torch::optim::Adam(net->parameters(), 1e-3));
        const auto x = torch::randn({4, 784}).to(worker.device());
        const auto y = torch::randint(10, {4}).to(worker.device());
        const auto train = [&](auto& with, const auto& images, const auto& more) {
            with.zero_grad();
            auto loss = torch::cross_entropy_loss(model(images), y);
            loss.backward();
            with.step();
            more(loss);
        };
        const auto nothing = [](const auto& /*loss*/) {};
        const auto refusal = [&](auto&& step) {
            return message_of([&] {
                auto captured = worker.capture(step);
                for (int call = 0; call < 4; ++call) {
                    captured(x);
                }
            });
        };
        const auto item = refusal([&](const at::Tensor& images) {
            train(optimizer, images, [](auto& loss) { (void)loss.template item<float>(); });
        });
        CHECK(contains(item, "RT-M70"));
        CHECK(contains(item, "operation not permitted when stream is capturing"));
        CHECK(contains(item, "item()"));

        torch::optim::Adam plain(net->parameters(), 1e-3);
        const auto unprepared =
            refusal([&](const at::Tensor& images) { train(plain, images, nothing); });
        CHECK(contains(unprepared, "RT-M70"));
        CHECK(contains(unprepared, "prepare the optimizer"));

        if (worker.size() > 1) {
            const auto reports = refusal([&](const at::Tensor& images) {
                train(optimizer, images, nothing);
                worker.barrier();
            });
            CHECK(contains(reports, "RT-M70"));
            CHECK(contains(reports, "on the CPU"));
        }

        auto captured =
            worker.capture([&](const at::Tensor& images) { train(optimizer, images, nothing); });
        for (int call = 0; call < 5; ++call) {
            captured(x);
        }
        const auto shape = message_of([&] { captured(x.slice(0, 0, 3)); });
        CHECK(contains(shape, "RT-M71"));
        CHECK(contains(shape, "[3, 784]"));
        net->eval();
        CHECK(contains(message_of([&] { captured(x); }), "RT-M72"));
        net->train();
        net->parameters()[0].set_requires_grad(false);
        CHECK(contains(message_of([&] { captured(x); }), "RT-M72"));
        net->parameters()[0].set_requires_grad(true);
        static_cast<torch::optim::AdamOptions&>(optimizer.param_groups()[0].options())
            .weight_decay(0.5);
        CHECK(contains(message_of([&] { captured(x); }), "RT-M72"));
    });
}
