// SPDX-License-Identifier: Apache-2.0
// Whole runs on ranks.
#include "support/training.hpp"

#include <rtrain/data/order/position.hpp>
#include <rtrain/data/readers/json.hpp>
#include <rtrain/process/context.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

using namespace rtrain;
using test::code_of;

namespace {

RunConfig run_in(const test::Directory& directory, const std::string& name) {
    return {.name = name, .storage_path = directory.path()};
}

/// 100 steps at a global batch of 24 rows; the flat parameters.
torch::Tensor train_on_ranks(const test::Directory& directory, const std::string& name) {
    torch::Tensor parameters;
    Trainer<> trainer(
        {.run = run_in(directory, name), .datasets = {{"train", test::fashion_mnist(2400)}}});
    trainer.fit([&](auto& worker) {
        torch::manual_seed(5);
        auto model = worker.prepare(test::Net{});
        torch::optim::SGD optimizer(model->parameters(),
                                    torch::optim::SGDOptions(0.1).momentum(0.9));
        auto batches = worker.dataset_shard("train").batches({.size = 24 / worker.size()});
        for (auto& batch : batches) {
            optimizer.zero_grad();
            torch::cross_entropy_loss(model(batch["image"]), batch["label"]).backward();
            optimizer.step();
        }
        parameters = test::flat(*model);
    });
    return parameters;
}

/// The same with nothing of rtrain but the data.
torch::Tensor train_alone() {
    torch::manual_seed(5);
    test::Net net;
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    const auto dataset = test::fashion_mnist(2400);
    for (int step = 0; step < 100; ++step) {
        auto batch = dataset.rows(torch::arange(24 * step, 24 * (step + 1)));
        optimizer.zero_grad();
        torch::cross_entropy_loss(net(batch["image"]), batch["label"]).backward();
        optimizer.step();
    }
    return test::flat(*net);
}

/// Stops by an exception when the function says so.
struct Stop : std::runtime_error {
    Stop() : std::runtime_error("stopped on purpose") {}
};

/// Trains with everything that has state, three epochs of eight steps, reporting every `every`
/// steps and after each epoch; stops behind step `stop_after`. The flat parameters.
template <class Policy = checkpoint::Sync>
torch::Tensor train_with_state(const test::Directory& directory, const std::string& name, int every,
                               int stop_after) {
    torch::Tensor parameters;
    Trainer<backend::Mpi, data::Sharded, Policy> trainer(
        {.run = run_in(directory, name), .datasets = {{"train", test::fashion_mnist(8 * 12)}}});
    trainer.fit([&](auto& worker) {
        torch::manual_seed(
            static_cast<std::uint64_t>(11 + worker.rank())); // dropout differs between ranks
        auto model = worker.prepare(test::Net(0.3, true));
        torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));
        torch::optim::StepLR schedule(optimizer, 1, 0.5);
        int step = 0;
        auto state = State{}
                         .add("model", model)
                         .add("optimizer", optimizer)
                         .add("schedule", schedule)
                         .add("step", step);
        auto batches =
            worker.dataset_shard("train").batches({.size = 12 / worker.size(), .shuffle = true});
        for (const int epoch : worker.epochs(3, state)) {
            for (auto& batch : batches) {
                optimizer.zero_grad();
                torch::cross_entropy_loss(model(batch["image"]), batch["label"]).backward();
                optimizer.step();
                if (++step % every == 0) {
                    worker.report({{"step", step}, {"epoch", epoch}}, state);
                }
                if (step == stop_after) {
                    throw Stop();
                }
            }
            schedule.step();
            worker.report({{"epoch", epoch}}, state);
        }
        CHECK(step == 24);
        parameters = test::flat(*model);
    });
    return parameters;
}

} // namespace

TEST_CASE("Training.any_number_of_ranks_gives_the_same_model") {
    const test::Directory directory("ranks");
    const auto first = train_on_ranks(directory, "first");
    const auto second = train_on_ranks(directory, "second");
    CHECK(first.equal(second)); // from run to run, to the bit
    CHECK((first - train_alone()).abs().max().item<double>() < 1e-5);
}

TEST_CASE("Training.a_stopped_run_goes_on_to_the_same_bits") {
    const test::Directory directory("stop");
    const auto expected = train_with_state(directory, "whole", 3, -1);
    for (const int stop : {3, 7, 8, 9, 16, 23}) {
        CAPTURE(stop);
        const std::string name = "stop-" + std::to_string(stop);
        CHECK(code_of([&] { train_with_state(directory, name, 3, stop); }) == "RT-T1");
        CHECK(train_with_state(directory, name, 3, -1).equal(expected));
        const std::string async = "async-" + name;
        CHECK(code_of([&] { train_with_state<checkpoint::Async>(directory, async, 3, stop); }) ==
              "RT-T1");
        CHECK(train_with_state<checkpoint::Async>(directory, async, 3, -1).equal(expected));
        std::vector<std::int64_t> iterations;
        for (const auto& report : Result::from_path(directory.path() / name).metrics_history) {
            iterations.push_back(report.at("training_iteration").as_int64());
        }
        REQUIRE(iterations.size() == 8 + 3);
        for (std::size_t i = 0; i < iterations.size(); ++i) {
            CHECK(iterations[i] == static_cast<std::int64_t>(i) + 1);
        }
    }
    // A finished run has nothing left to do.
    int epochs = 0;
    auto whole = run_in(directory, "whole");
    whole.resume = Resume::always;
    Trainer<> trainer({.run = whole});
    const Result result = trainer.fit([&](auto& worker) {
        int step = 0;
        auto state = State{}.add("step", step);
        for (const int epoch : worker.epochs(3, state)) {
            epochs += epoch;
        }
        CHECK(step == 24);
    });
    CHECK(epochs == 0);
    CHECK(result.metrics.at("epoch") == 2);
}

TEST_CASE("Training.an_error_of_communication_that_is_caught_fails_the_run") {
    const test::Directory directory("caught");
    Trainer<> trainer({.run = run_in(directory, "caught")});
    const int ranks = launch::ranks().value_or(1);
    std::string again;
    const auto message = test::message_of([&] {
        trainer.fit([&](auto& worker) {
            auto model = worker.prepare(torch::nn::Linear(2, 1));
            for (int step = 0; step < 4; ++step) {
                try { // as programs skip bad batches
                    if (step == 1 && worker.rank() == worker.size() - 1) {
                        throw std::runtime_error("a bad batch");
                    }
                    model(torch::ones({1, 2})).sum().backward();
                } catch (const std::exception&) {
                }
            }
            try {
                worker.report({{"loss", 1.0}});
            } catch (const std::exception&) {
            }
            again = code_of([&] { worker.barrier(); });
        });
    });
    CAPTURE(message);
    CHECK(test::contains(message, "RT-T1") == (ranks > 1));
    CHECK((test::contains(message, "RT-X10") || test::contains(message, "RT-X4")) == (ranks > 1));
    CHECK(again.empty() == (ranks == 1)); // no call pretends that nothing was
}

TEST_CASE("Report.says_what_the_time_went_to") {
    const test::Directory directory("report-time");
    constexpr auto pause = std::chrono::milliseconds(20);
    Trainer<> trainer({.run = run_in(directory, "time"),
                       .datasets = {{"train", test::fashion_mnist(24).map_batches([=](auto batch) {
                                         std::this_thread::sleep_for(pause);
                                         return batch;
                                     })}}});
    ProcessContext::current().clock.add_step(); // before the run, so in none of its reports
    ProcessContext::current().clock.add_rows(7);
    const auto result = trainer.fit([&](auto& worker) {
        auto model = worker.prepare(test::Net{});
        model->parameters().front().register_hook([&](at::Tensor gradient) {
            std::this_thread::sleep_for(2 * pause);
            return gradient;
        });
        auto batches = worker.dataset_shard("train").batches({.size = 24 / worker.size() / 2});
        for (auto& batch : batches) {
            torch::cross_entropy_loss(model(batch["image"]), batch["label"]).backward();
            std::this_thread::sleep_for(3 * pause);
        }
        if (worker.rank() == 0 && worker.size() > 1) {
            std::this_thread::sleep_for(4 * pause); // the others wait in their report
        }
        worker.report({{"loss", 1.0}});
        worker.report({{"time", "mine"}});
    });
    const Config& first = result.metrics_history.at(0);
    CHECK(metric_of(first, "time/data") >= 0.040);
    CHECK(metric_of(first, "time/backward") >= 0.080);
    CHECK(metric_of(first, "time/optimizer") >= 0.120);
    CHECK(metric_of(first, "time/steps") == 2);
    CHECK(metric_of(first, "time/rows") == 24);
    CHECK(result.metrics.at("time") == "mine"); // a user's metric stays
}

TEST_CASE("Report.says_how_many_rows_could_not_be_read") {
    const test::Directory directory("report-skipped");
    const auto path = directory.path() / ("rows-" + std::to_string(::getpid()) + ".json");
    std::ofstream file(path);
    for (int row = 0; row < 40; ++row) {
        file << (row % 16 == 3 ? "nonsense" : "{\"x\": 1}") << '\n'; // three bad ones
    }
    file.close();
    Trainer<> trainer({.run = run_in(directory, "skipped"),
                       .datasets = {{"rows", data::read_json(path, {.on_error = data::OnError::skip,
                                                                    .block_bytes = 64})}},
                       .datasets_to_split = std::vector<std::string>{}});
    const auto result = trainer.fit([&](auto& worker) {
        worker.report({{"before", 1}});
        for (int epoch = 0; epoch < 2; ++epoch) { // the second one finds none that is new
            auto batches = worker.dataset_shard("rows").batches({.size = 8, .shuffle = true});
            for (auto& batch : batches) {
                CHECK((batch["x"] == 1).all().template item<bool>());
            }
            worker.report({{"epoch", epoch}});
        }
        worker.report({{"data", "mine"}});
    });
    REQUIRE(result.metrics_history.size() == 4);
    CHECK_FALSE(result.metrics_history[0].contains("data"));
    CHECK(metric_of(result.metrics_history[1], "data/skipped_rows") ==
          3 * launch::ranks().value_or(1));
    CHECK_FALSE(result.metrics_history[2].contains("data"));
    CHECK(result.metrics_history[3].at("data") == "mine"); // a user's metric stays
}

TEST_CASE("Profile.traces_the_steps_asked_for_on_all_ranks") {
    const test::Directory directory("profile");
    auto run = run_in(directory, "traced");
    run.profile = {.steps = {1, 3}};
    Trainer<> trainer({.run = run, .datasets = {{"train", test::fashion_mnist(48)}}});
    int rank = 0;
    int ranks = 0;
    const auto result = trainer.fit([&](auto& worker) {
        rank = worker.rank();
        ranks = worker.size();
        auto model = worker.prepare(test::Net{});
        torch::optim::SGD optimizer(model->parameters(), 0.1);
        auto batches = worker.dataset_shard("train").batches({.size = 12 / worker.size()});
        for (auto& batch : batches) {
            optimizer.zero_grad();
            torch::cross_entropy_loss(model(batch["image"]), batch["label"]).backward();
            optimizer.step();
        }
        worker.report({});
        worker.report({}); // writes none again
    });
    if (rank != 0) {
        return;
    }
    const auto trace = json::parse(test::read(result.path / "trace.json")).as_object();
    std::map<std::int64_t, std::map<std::string, int>> counts; // by rank
    std::map<std::int64_t, double> last;                       // end of the part before
    for (const auto& item : trace.at("traceEvents").as_array()) {
        const auto& event = item.as_object();
        if (event.at("ph") != "X") {
            continue;
        }
        const auto of = event.at("pid").to_number<std::int64_t>();
        const double begin = event.at("ts").to_number<double>();
        const double length = event.at("dur").to_number<double>();
        CHECK(begin >= 0);
        CHECK(length >= 0);
        ++counts[of][std::string(event.at("name").as_string())];
        if (event.at("tid").to_number<int>() == 0) { // parts follow one another without a gap
            CHECK((last[of] == 0 || std::abs(begin - last[of]) < 1));
            last[of] = begin + length;
        }
    }
    CHECK(counts.size() == static_cast<std::size_t>(ranks));
    for (const auto& [of, names] : counts) {
        CAPTURE(of);
        CHECK(names.at("data") == 2);
        CHECK(names.at("forward") == 2);
        CHECK(names.at("backward") >= 2);
        CHECK(names.at("aten::cross_entropy_loss") == 2);
        CHECK(names.at("aten::addmm") >= 4);
    }
}

TEST_CASE("Worker.knows_its_place_and_talks") {
    const test::Directory directory("worker");
    Trainer<> trainer({.config = {{"answer", 42}}, .run = run_in(directory, "r")});
    trainer.fit([&](auto& worker, const Config& config) {
        CHECK(config.at("answer") == 42);
        CHECK(worker.size() == launch::ranks().value_or(1));
        const auto place = test::expected_place();
        CHECK(worker.local_rank() == place.local_rank);
        CHECK(worker.local_size() == place.local_size);
        CHECK(worker.node_rank() == place.node_rank);
        CHECK(worker.device() == torch::kCPU);
        CHECK(at::get_num_threads() <= static_cast<int>(std::thread::hardware_concurrency()));
        worker.barrier();
        const int last = worker.size() - 1;
        CHECK(worker.broadcast(worker.rank() + 0.5, last) == last + 0.5);
        CHECK(worker.broadcast(std::string("rank ") + std::to_string(worker.rank())) == "rank 0");
        CHECK(worker.broadcast(Config{{"rank", worker.rank()}, {"x", 0.1}}, last) ==
              Config{{"rank", last}, {"x", 0.1}});
        CHECK(worker.all_reduce(worker.rank() + 1) == worker.size() * (worker.size() + 1) / 2);
        CHECK(worker.all_reduce(1.5, ReduceOp::mean) == 1.5);
        CHECK(worker.all_reduce(worker.rank(), ReduceOp::max) == last);
        auto tensor = torch::full({3}, 2.0);
        worker.all_reduce(tensor);
        CHECK(tensor[2].item<double>() == 2.0 * worker.size());
        tensor.fill_(worker.rank());
        worker.broadcast(tensor, last);
        CHECK(tensor[0].item<double>() == last);
        const auto gathered = worker.all_gather(torch::tensor(worker.rank()));
        const auto numbers = worker.all_gather(worker.rank() * 2);
        REQUIRE(gathered.size() == static_cast<std::size_t>(worker.size()));
        for (int rank = 0; rank < worker.size(); ++rank) {
            CHECK(gathered[static_cast<std::size_t>(rank)].template item<int>() == rank);
            CHECK(numbers[static_cast<std::size_t>(rank)] == 2 * rank);
        }
    });
}

TEST_CASE("Datasets.are_split_or_read_whole") {
    const test::Directory directory("split");
    const auto rows_of = [&](auto& worker, const std::string& name) {
        auto rows = torch::zeros({1000}, torch::kLong);
        for (auto& batch : worker.dataset_shard(name).batches({.size = 10, .shuffle = true})) {
            rows.index_add_(0, batch["x"], torch::ones_like(batch["x"]));
        }
        return rows;
    };
    const auto numbers = data::from_tensors({{"x", torch::arange(1000)}});
    using Names = std::vector<std::string>;
    int run = 0;
    for (const std::optional<Names>& to_split :
         {std::optional<Names>(), std::optional(Names{"train"}), std::optional(Names{})}) {
        Trainer<backend::Mpi, data::Permuted> trainer(
            {.run = run_in(directory, "r" + std::to_string(++run)),
             .datasets = {{"train", numbers}, {"valid", numbers}},
             .datasets_to_split = to_split});
        trainer.fit([&](auto& worker) {
            for (const std::string name : {"train", "valid"}) {
                CAPTURE(name);
                const bool split = !to_split || (name == "train" && !to_split->empty());
                auto rows = rows_of(worker, name);
                const auto mine = rows.sum().template item<std::int64_t>();
                CHECK(std::abs(mine - worker.dataset_shard(name).size()) <= 1);
                CHECK(std::abs(mine - (split ? 1000 / worker.size() : 1000)) <= 1);
                worker.all_reduce(rows);
                CHECK((rows == (split ? 1 : worker.size())).all().template item<bool>());
            }
        });
    }
    CHECK(code_of([&] {
              Trainer<> trainer({.run = run_in(directory, "r"),
                                 .datasets = {{"train", numbers}},
                                 .datasets_to_split = Names{"train", "tset"}});
          }) == "RT-C29");
}

TEST_CASE("Errors.num_workers_must_be_the_number_of_ranks") {
    const test::Directory directory("workers");
    const int size = launch::ranks().value_or(1);
    Trainer<> trainer({.scaling = {.num_workers = size + 1}, .run = run_in(directory, "r")});
    const auto message = test::message_of([&] { trainer.fit([](auto&) { FAIL("trained"); }); });
    CHECK(test::contains(message, "RT-C2"));
    CHECK(test::contains(message, "mpirun -n " + std::to_string(size + 1)));
}

TEST_CASE("Errors.bad_storage_is_found_on_every_rank") {
    const test::Directory directory("storage");
    if (launch::env_int("OMPI_COMM_WORLD_RANK").value_or(0) == 0) {
        test::write(directory.path() / "file", "in the way");
    }
    Trainer<> trainer({.run = {.name = "r", .storage_path = directory.path() / "file"}});
    CHECK(code_of([&] { trainer.fit([](auto&) { FAIL("trained"); }); }) == "RT-S1");
}

TEST_CASE("Errors.a_rank_that_throws_ends_all" * doctest::timeout(60)) {
    const test::Directory directory("throws");
    int number = 0;
    const auto failures = [&](auto&& function) {
        Trainer<> trainer({.run = run_in(directory, "r" + std::to_string(++number))});
        try {
            trainer.fit(function);
        } catch (const TrainingFailedError& error) {
            return error.worker_failures();
        }
        return std::map<int, std::string>{};
    };
    const int last = launch::ranks().value_or(1) - 1;
    const auto culprit_last = [&](auto& worker) {
        if (worker.rank() == last) {
            throw std::runtime_error("bad luck");
        }
    };
    using Failures = std::map<int, std::string>;
    const Failures expected{{last, "bad luck"}};
    SUBCASE("while others wait in a barrier") {
        CHECK(failures([&](auto& worker) {
                  culprit_last(worker);
                  worker.barrier();
              }) == expected);
    }
    SUBCASE("while others average gradients") {
        CHECK(failures([&](auto& worker) {
                  auto model = worker.prepare(torch::nn::Linear(500, 500));
                  model(torch::ones({1, 500})).sum().backward();
                  culprit_last(worker);
                  model(torch::ones({1, 500})).sum().backward();
              }) == expected);
    }
    SUBCASE("while others report") {
        CHECK(failures([&](auto& worker) {
                  worker.report({{"x", 1}});
                  culprit_last(worker);
                  int x = 0;
                  worker.report({{"x", 2}}, State{}.add("x", x));
              }) == expected);
    }
    SUBCASE("while others have returned") {
        CHECK(failures([&](auto& worker) { culprit_last(worker); }) == expected);
    }
    SUBCASE("in a hook of backward") {
        CHECK(failures([&](auto& worker) {
                  auto model = worker.prepare(torch::nn::Linear(500, 500));
                  auto x = torch::ones({1, 500}, torch::requires_grad());
                  auto y = model(x);
                  if (worker.rank() == last) {
                      y.register_hook([](const torch::Tensor&) -> torch::Tensor {
                          throw std::runtime_error("bad luck");
                      });
                  }
                  y.sum().backward();
              }) == expected);
    }
    SUBCASE("on all ranks alike") {
        const auto all = failures([](auto&) { throw std::runtime_error("same"); });
        CHECK(all.size() == static_cast<std::size_t>(last) + 1);
    }
    // The program can go on with another run.
    CHECK(failures([](auto& worker) { worker.report({{"x", 1}}); }).empty());
}

TEST_CASE("Errors.uneven_batches_are_explained" * doctest::timeout(60)) {
    const test::Directory directory("uneven");
    if (launch::ranks().value_or(1) == 1) {
        return;
    }
    Trainer<> trainer({.run = run_in(directory, "r")});
    const auto message = test::message_of([&] {
        trainer.fit([](auto& worker) {
            auto model = worker.prepare(torch::nn::Linear(5, 5));
            for (int step = 0; step < (worker.rank() == 0 ? 4 : 3); ++step) {
                model(torch::ones({1, 5})).sum().backward();
            }
        });
    });
    CHECK(test::contains(message, "RT-X4"));
    CHECK(test::contains(message, "equally many"));
    CHECK(test::contains(message, "backward pass 4 ("));
}

TEST_CASE("Errors.name_what_the_program_has_called" * doctest::timeout(120)) {
    if (launch::ranks().value_or(1) == 1) {
        return;
    }
    const test::Directory directory("named");
    int number = 0;
    const auto message_of = [&](auto&& function) {
        Trainer<> trainer({.run = run_in(directory, "r" + std::to_string(++number))});
        return test::message_of([&] { trainer.fit(function); });
    };
    auto message = message_of([](auto& worker) {
        for (int step = 0; step < (worker.rank() == 0 ? 3 : 2); ++step) {
            worker.report({{"step", step}});
        }
    });
    CHECK(test::contains(message, "RT-X4"));
    CHECK(test::contains(message, "report() 3 ("));
    message = message_of([](auto& worker) {
        auto model = worker.prepare(torch::nn::BatchNorm1d(5));
        const auto train = [&] { model(torch::ones({2, 5})).sum().backward(); };
        train();
        if (worker.rank() == 0) {
            worker.report({{"x", 1}});
        } else {
            train();
        }
    });
    CAPTURE(message);
    CHECK(test::contains(message, "RT-X10"));
    CHECK(test::contains(message, "report() 1 ("));
    CHECK(test::contains(message, "forward pass 2 ("));
    message = message_of([](auto& worker) {
        if (worker.rank() == 0) {
            (void)worker.broadcast(std::string("text"));
        } else {
            (void)worker.all_gather(1.5);
        }
    });
    CHECK(test::contains(message, "broadcast() ("));
    CHECK(test::contains(message, "all_gather() ("));
}

TEST_CASE("Report.different_checkpoints_on_ranks") {
    const test::Directory directory("reports");
    int number = 0;
    const auto fit = [&](auto&& function) {
        Trainer<> trainer({.run = run_in(directory, "r" + std::to_string(++number))});
        return trainer.fit(function);
    };
    const auto write_file = [&](auto& worker, const std::string& name, const std::string& text) {
        const auto mine = directory.path() / ("mine" + std::to_string(worker.rank()));
        std::filesystem::remove_all(mine);
        std::filesystem::create_directories(mine);
        test::write(mine / name, text);
        return Checkpoint::from_directory(mine);
    };
    SUBCASE("files of all ranks are merged") {
        const Result result = fit([&](auto& worker) {
            const auto rank = std::to_string(worker.rank());
            worker.report({{"rank", worker.rank()}}, write_file(worker, "part-" + rank, rank));
        });
        CHECK(result.metrics.at("rank") == 0);
        for (int rank = 0; rank < launch::ranks().value_or(1); ++rank) {
            CHECK(test::read(result.checkpoint->path / ("part-" + std::to_string(rank))) ==
                  std::to_string(rank));
        }
    }
    SUBCASE("one rank's files are enough") {
        const Result result = fit([&](auto& worker) {
            if (worker.rank() == worker.size() - 1) {
                worker.report({{"x", 1}}, write_file(worker, "model", "weights"));
            } else {
                worker.report({{"x", 1}});
            }
        });
        CHECK(test::read(result.checkpoint->path / "model") == "weights");
    }
    SUBCASE("the same files are kept once") {
        const Result result = fit([&](auto& worker) {
            worker.report({{"x", 1}}, write_file(worker, "model", "same"));
        });
        CHECK(test::read(result.checkpoint->path / "model") == "same");
    }
    if (launch::ranks().value_or(1) == 1) {
        return;
    }
    SUBCASE("different files of one name are an error") {
        const auto message = test::message_of([&] {
            fit([&](auto& worker) {
                worker.report({{"x", 1}},
                              write_file(worker, "model", "of " + std::to_string(worker.rank())));
            });
        });
        CHECK(test::contains(message, "RT-K5"));
        CHECK(test::contains(message, "\"model\""));
    }
    SUBCASE("a state on some ranks only is an error") {
        const auto message = test::message_of([&] {
            fit([&](auto& worker) {
                int x = 0;
                if (worker.rank() == 0) {
                    worker.report({{"x", 1}}, State{}.add("x", x));
                } else {
                    worker.report({{"x", 1}});
                }
            });
        });
        CHECK(test::contains(message, "RT-K5"));
    }
}

TEST_CASE("Resume.on_another_number_of_ranks_reads_the_rest_of_the_epoch") {
    // The checkpoint of a run on `from` ranks, as each number of ranks would have written it.
    const test::Directory directory("elastic");
    const int size = launch::ranks().value_or(1);
    constexpr std::int64_t rows = 48;
    constexpr std::int64_t taken = 12; // a multiple of 1, 2, 3 and 4
    data::Position position{0, taken};
    std::vector<std::int64_t> mine;
    Trainer<> trainer({.run = run_in(directory, "r")});
    trainer.fit([&](auto& worker) {
        data::Batches batches({.dataset = data::from_tensors({{"x", torch::arange(rows)}}),
                               .policy = data::Sharded{},
                               .rank = worker.rank(),
                               .size = size},
                              {.size = 2, .shuffle = true},
                              std::make_shared<data::Position>(position));
        auto seen = torch::zeros({rows}, torch::kLong);
        for (auto& batch : batches) {
            for (const auto& row : batch["x"].unbind()) {
                seen[row.template item<std::int64_t>()] += 1;
            }
        }
        worker.all_reduce(seen);
        const auto order = data::distributed_order({.rows = rows, .shuffle = true});
        for (std::int64_t i = 0; i < rows; ++i) {
            CHECK(seen[order[i].template item<std::int64_t>()].template item<int>() ==
                  (i < taken ? 0 : 1));
        }
    });
}

TEST_CASE("Worker.numbers_are_reduced_as_their_type_says") {
    const test::Directory directory("numbers");
    Trainer<> trainer({.run = run_in(directory, "r")});
    trainer.fit([&](auto& worker) {
        const int size = worker.size();
        constexpr std::uint64_t top_bit = std::uint64_t{1} << 63;
        const auto mine = worker.rank() == size - 1 ? top_bit : std::uint64_t{1};
        CHECK(worker.all_reduce(mine, ReduceOp::max) == top_bit);
        CHECK(worker.all_reduce(mine, ReduceOp::min) == (size > 1 ? 1 : top_bit));
        CHECK(worker.all_reduce(mine) == top_bit + static_cast<std::uint64_t>(size - 1));
        CHECK(worker.all_reduce(-3, ReduceOp::min) == -3);
        CHECK(worker.all_reduce(static_cast<unsigned char>(1)) == size);
        const auto code = size > 1 ? "RT-X26" : "";
        CHECK(code_of([&] { (void)worker.all_reduce(1500000000); }) == code);
        CHECK(code_of([&] { (void)worker.all_reduce(static_cast<std::uint8_t>(200)); }) == code);
        CHECK(code_of([&] { (void)worker.all_reduce(top_bit); }) == code);
        CHECK(code_of([&] { (void)worker.all_reduce(std::numeric_limits<std::int64_t>::min()); }) ==
              code);
        CHECK(worker.all_reduce(std::int64_t{1500000000}) == std::int64_t{1500000000} * size);
        CHECK(code_of([&] { (void)worker.all_reduce(1, ReduceOp::mean); }) == "RT-X7");
    });
}

TEST_CASE("Report.takes_tensors_of_one_element") {
    const test::Directory directory("tensor_report");
    Trainer<> trainer({.run = run_in(directory, "r")});
    const Result result = trainer.fit([&](auto& worker) {
        int step = 1;
        const auto state = State{}.add("step", step);
        worker.report({{"loss", torch::full({}, 0.5)}, {"count", torch::tensor({7})}, {"x", 2}},
                      state);
        CHECK(code_of([&] { worker.report({{"loss", torch::ones({2})}}); }) == "RT-C34");
    });
    CHECK(result.metric("loss") == 0.5);
    CHECK(result.metrics.at("count") == 7);
    CHECK(result.metric("x") == 2);
}

namespace {

/// A loop over `rows` numbered rows, of which all ranks together take 12 at a time; behind every
/// pass but each `passes`-th, gradients stay on the rank.
template <class D, class Options>
torch::Tensor train_rows(std::int64_t rows, std::int64_t passes, const Options& options) {
    const test::Directory directory("rows");
    torch::Tensor parameters;
    const auto x = torch::sin(torch::arange(rows * 3).to(torch::kDouble)).view({rows, 3});
    Trainer<backend::Mpi, D, checkpoint::None> trainer(
        {.run = run_in(directory, "r"),
         .datasets = {{"train", data::from_tensors({{"x", x}, {"row", torch::arange(rows)}})}}});
    trainer.fit([&](auto& worker) {
        torch::manual_seed(3);
        torch::nn::Linear linear(3, 1);
        linear->to(torch::kDouble);
        auto model = worker.prepare(linear, options);
        auto optimizer = worker.prepare(torch::optim::SGD(model->parameters(), 0.3));
        auto batches = worker.dataset_shard("train").batches({.size = 12 / worker.size()});
        for (int epoch = 0; epoch < 2; ++epoch) {
            std::int64_t pass = 0;
            for (auto& batch : batches) {
                const auto target = 0.1 * batch["row"].to(torch::kDouble).unsqueeze(1);
                const auto run = [&] {
                    ((model(batch["x"]) - target).square().mean() / passes).backward();
                };
                if (++pass % passes != 0 && pass < batches.size()) {
                    const auto guard = model.no_sync();
                    run();
                    continue;
                }
                run();
                optimizer.step();
                optimizer.zero_grad();
            }
        }
        parameters = test::flat(*linear).clone();
    });
    return parameters;
}

/// The same in one process, with nothing of rtrain.
torch::Tensor train_rows_alone(std::int64_t rows, std::int64_t passes) {
    const auto x = torch::sin(torch::arange(rows * 3).to(torch::kDouble)).view({rows, 3});
    torch::manual_seed(3);
    torch::nn::Linear linear(3, 1);
    linear->to(torch::kDouble);
    torch::optim::SGD optimizer(linear->parameters(), 0.3);
    for (int epoch = 0; epoch < 2; ++epoch) {
        std::int64_t pass = 0;
        for (std::int64_t begin = 0; begin < rows; begin += 12) {
            const auto end = std::min(begin + 12, rows);
            const auto target = 0.1 * torch::arange(begin, end).to(torch::kDouble).unsqueeze(1);
            ((linear(x.slice(0, begin, end)) - target).square().mean() / passes).backward();
            if (++pass % passes == 0 || end == rows) {
                optimizer.step();
                optimizer.zero_grad();
            }
        }
    }
    return test::flat(*linear).clone();
}

} // namespace

TEST_CASE("Training.batches_of_different_sizes_count_by_their_rows") {
    for (const std::int64_t rows : {55, 53}) { // 7 and 5 are left for a last step
        for (const std::int64_t passes : {1, 3}) {
            CAPTURE(rows);
            CAPTURE(passes);
            const auto expected = train_rows_alone(rows, passes);
            const auto is_expected = [&](const torch::Tensor& parameters) {
                return torch::allclose(parameters, expected, 1e-12, 1e-12);
            };
            const DataParallelOptions plain;
            CHECK(is_expected(train_rows<data::Permuted>(rows, passes, plain)));
            if (rows == 53) {
                continue;
            }
            CHECK(is_expected(train_rows<data::Streaming>(rows, passes, plain)));
            const DataParallelOptions by_tree{.reduction_order = ReductionOrder::micro_batches};
            CHECK(is_expected(train_rows<data::Permuted>(rows, passes, by_tree)));
            CHECK(is_expected(train_rows<data::Permuted>(
                rows, passes, ShardedOptions{.level = Shard::gradients})));
            if (passes == 1 && launch::ranks().value_or(1) > 1) {
                const DataParallelOptions of_sums{.weight_by_rows = false};
                CHECK(!is_expected(train_rows<data::Permuted>(rows, passes, of_sums)));
            }
        }
    }
}
