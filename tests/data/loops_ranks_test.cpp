// SPDX-License-Identifier: Apache-2.0
// Loops over batches that lie in each other, and the end of epochs, on ranks.
#include "support/remove_at_once.hpp"
#include "support/training.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <utility>
#include <vector>

using namespace rtrain;
using test::code_of;

namespace {

struct Trained {
    torch::Tensor parameters;
    std::vector<std::pair<std::int64_t, std::int64_t>> rows; ///< of this process, by step
};

/// Two epochs of a loop inside a loop, behind a loop that trains as well; reports in each inner
/// step, and stops in step `stop_at`.
Trained train_in_loops(const test::Directory& directory, const std::string& name, int stop_at) {
    Trained trained;
    const int size = launch::ranks().value_or(1);
    const auto rows = [&](std::int64_t count) {
        return data::from_tensors({{"row", torch::arange(count)},
                                   {"x", torch::sin(torch::arange(count * 8)).view({count, 8})}});
    };
    Trainer<> trainer(
        {.run = {.name = name, .storage_path = directory.path()},
         .datasets = {{"a", rows(2 * size)}, {"b", rows(3 * size)}, {"c", rows(2 * size)}}});
    trainer.fit([&](auto& worker) {
        torch::manual_seed(7);
        auto model = worker.prepare(torch::nn::Sequential(
            torch::nn::Linear(8, 8), torch::nn::Dropout(0.3), torch::nn::Linear(8, 1)));
        torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));
        int step = 0;
        auto state = State{}.add("model", model).add("optimizer", optimizer).add("step", step);
        const auto take_step = [&](data::Batch& outer, data::Batch& inner) {
            optimizer.zero_grad();
            model(outer["x"] + inner["x"]).square().sum().backward();
            optimizer.step();
            trained.rows.emplace_back(outer["row"][0].template item<std::int64_t>(),
                                      inner["row"][0].template item<std::int64_t>());
            if (++step % 2 == 0 || step == stop_at) {
                worker.report({{"step", step}}, state);
            }
            if (step == stop_at) {
                throw std::runtime_error("stopped on purpose");
            }
        };
        const auto batches = [&](const std::string& shard) {
            return worker.dataset_shard(shard).batches({.size = 1, .shuffle = true});
        };
        auto first = batches("c");
        auto outer = batches("a");
        auto inner = batches("b");
        for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
            for (auto& c : first) {
                take_step(c, c);
            }
            for (auto& a : outer) {
                for (auto& b : inner) {
                    take_step(a, b);
                }
            }
            worker.report({{"step", step}}, state);
        }
        CHECK(step == 16);
        trained.parameters = test::flat(*model);
    });
    return trained;
}

} // namespace

TEST_CASE("Loops.a_stopped_run_goes_on_in_each_to_the_same_bits") {
    const test::Directory directory("loops");
    const auto whole = train_in_loops(directory, "whole", -1);
    REQUIRE(whole.rows.size() == 16);
    for (const int stop : {1, 2, 3, 6, 7, 8, 11, 14}) {
        CAPTURE(stop);
        const std::string name = "stop-" + std::to_string(stop);
        CHECK(code_of([&] { train_in_loops(directory, name, stop); }) == "RT-T1");
        CHECK(code_of([&] { train_in_loops(directory, name, stop + 2); }) == "RT-T1");
        const auto rest = train_in_loops(directory, name, -1);
        CHECK(rest.parameters.equal(whole.parameters));
        const std::vector expected(whole.rows.begin() + stop + 2, whole.rows.end());
        CHECK(rest.rows == expected);
    }
}

namespace {

/// What a filter leaves: steps of 12 rows of which two are empty, and one has a row on one rank.
class Filtered : public data::Dataset::Source {
public:
    [[nodiscard]] std::int64_t size() const override { return 60; }
    [[nodiscard]] data::Batch rows(const at::Tensor& indices) const override {
        const auto kept = indices.masked_select(
            (indices < 12).logical_or(indices == 47).logical_or(indices >= 48));
        return data::Batch({{"x", torch::sin(kept.to(torch::kDouble)).unsqueeze(1)}});
    }
};

struct Trajectory {
    std::vector<std::int64_t> rows; ///< of all ranks, by step
    std::vector<double> weights;    ///< behind each step
};

/// Two epochs; reports in each step, and stops in step `stop_at`.
Trajectory train_on_filtered(const test::Directory& directory, const std::string& name,
                             int stop_at) {
    Trajectory taken;
    Trainer<> trainer({.run = {.name = name, .storage_path = directory.path()},
                       .datasets = {{"rows", data::Dataset(std::make_shared<Filtered>())}}});
    trainer.fit([&](auto& worker) {
        torch::manual_seed(7);
        torch::nn::Linear linear(torch::nn::LinearOptions(1, 1).bias(false));
        linear->to(torch::kDouble);
        auto model = worker.prepare(linear);
        torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01));
        int step = 0;
        const auto state = State{}.add("model", model).add("step", step);
        auto batches = worker.dataset_shard("rows").batches({.size = 12 / worker.size()});
        for ([[maybe_unused]] const int epoch : worker.epochs(2, state)) {
            for (auto& batch : batches) {
                optimizer.zero_grad();
                ((model(batch["x"]) - 1).square().sum() * worker.size()).backward();
                optimizer.step();
                auto rows = torch::tensor(batch.size());
                worker.all_reduce(rows);
                taken.rows.push_back(rows.template item<std::int64_t>());
                taken.weights.push_back(linear->weight.template item<double>());
                worker.report({{"step", ++step}}, state);
                if (step == stop_at) {
                    throw std::runtime_error("stopped on purpose");
                }
            }
        }
        CHECK(step == 10);
    });
    return taken;
}

} // namespace

TEST_CASE("Loops.go_on_after_batches_without_rows" * doctest::timeout(60)) {
    const test::Directory directory("filtered");
    const auto whole = train_on_filtered(directory, "whole", -1);
    CHECK(whole.rows == std::vector<std::int64_t>{12, 0, 0, 1, 12, 12, 0, 0, 1, 12});
    CHECK(whole.weights[0] == whole.weights[2]);
    CHECK(whole.weights[2] != whole.weights[3]);
    CHECK(whole.weights[3] != whole.weights[4]);
    for (const int stop : {1, 2, 3, 4, 7}) {
        CAPTURE(stop);
        const std::string name = "stop-" + std::to_string(stop);
        CHECK(code_of([&] { train_on_filtered(directory, name, stop); }) == "RT-T1");
        const auto rest = train_on_filtered(directory, name, -1);
        CHECK(rest.rows == std::vector(whole.rows.begin() + stop, whole.rows.end()));
        CHECK(rest.weights == std::vector(whole.weights.begin() + stop, whole.weights.end()));
    }
}

TEST_CASE("Loops.a_refusal_reaches_all_ranks" * doctest::timeout(60)) {
    // Also when one rank alone has the loop that has no way back.
    const test::Directory directory("refusal");
    std::string code;
    const int last = launch::ranks().value_or(1) - 1;
    Trainer<> trainer(
        {.run = {.name = "r", .storage_path = directory.path()},
         .datasets = {{"a", data::from_tensors({{"x", torch::arange(4 * (last + 1))}})}}});
    CHECK(code_of([&] {
              trainer.fit([&](auto& worker) {
                  int step = 0;
                  auto state = State{}.add("step", step);
                  auto batches = worker.dataset_shard("a").batches({.size = 4});
                  for ([[maybe_unused]] const int epoch : worker.epochs(1, state)) {
                      for (int pass = 0; pass < 2 && worker.rank() == last; ++pass) {
                          for (auto& batch : batches) {
                              (void)batch;
                              if (pass == 1) {
                                  try {
                                      worker.report({}, state);
                                  } catch (const Error& error) {
                                      code = error.code();
                                      throw;
                                  }
                              }
                          }
                      }
                      try {
                          worker.report({}, state);
                      } catch (const Error& error) {
                          code = error.code();
                          throw;
                      }
                  }
              });
          }) == "RT-T1");
    CHECK(code == "RT-D15");
}

TEST_CASE("Stop.of_one_rank_ends_the_epochs_of_all_for_good" * doctest::timeout(60)) {
    const test::Directory directory("stop");
    const int last = launch::ranks().value_or(1) - 1;
    int began = 0;
    const auto run = [&](const std::string& name, bool report_behind, bool fail) {
        Trainer<> trainer({.run = {.name = name, .storage_path = directory.path()}});
        return trainer.fit([&](auto& worker) {
            int steps = 0;
            auto state = State{}.add("steps", steps);
            for (const int epoch : worker.epochs(10, state)) {
                ++began;
                ++steps;
                if (!report_behind) {
                    worker.report({{"steps", steps}}, state);
                }
                if (epoch == 2 && worker.rank() == last) {
                    worker.stop();
                }
                if (report_behind) {
                    worker.report({{"steps", steps}}, state);
                }
            }
            CHECK(steps == 3);
            if (fail) {
                throw std::runtime_error("behind the loop");
            }
        });
    };
    for (const bool report_behind : {true, false}) {
        CAPTURE(report_behind);
        const std::string name = report_behind ? "behind" : "before";
        began = 0;
        CHECK(code_of([&] { run(name, report_behind, true); }) == "RT-T1");
        run(name, report_behind, false);
        const auto result = run(name, report_behind, false);
        CHECK(began == 3);
        CHECK(result.metrics_history.size() == 3);
        CHECK(result.best_checkpoints.size() == (report_behind ? 3 : 4));
    }
}

TEST_CASE("Directory.that_goes_is_noticed_by_all_ranks" * doctest::timeout(60)) {
    const test::Directory directory("gone");
    for (const bool made_anew : {false, true}) {
        for (const bool with_state : {false, true}) {
            CAPTURE(made_anew);
            CAPTURE(with_state);
            std::string code;
            Trainer<> trainer({.run = {.name = "r", .storage_path = directory.path()}});
            CHECK(code_of([&] {
                      trainer.fit([&](auto& worker) {
                          int step = 0;
                          auto state = State{}.add("step", step);
                          worker.report({}, state);
                          if (worker.rank() == 0) {
                              test::remove_at_once(directory.path() / "r");
                              if (made_anew) {
                                  std::filesystem::create_directories(directory.path() / "r");
                              }
                          }
                          try {
                              if (with_state) {
                                  worker.report({}, state);
                              } else {
                                  worker.report({});
                              }
                          } catch (const Error& error) {
                              code = error.code();
                              throw;
                          }
                      });
                  }) == "RT-T1");
            CHECK(code == "RT-S17");
        }
    }
}

TEST_CASE("Loops.all_ranks_take_equally_many_batches_whatever_a_filter_leaves" *
          doctest::timeout(120)) {
    const test::Directory directory("uncounted");
    const int size = launch::ranks().value_or(1);
    const auto rows = data::from_tensors({{"row", torch::arange(600)}});
    const auto keep = [&](auto condition) {
        return rows.filter([=](const data::Batch& batch) { return condition(batch["row"]); });
    };
    Trainer<backend::Mpi, data::Streaming> trainer(
        {.run = {.name = "filters", .storage_path = directory.path()},
         .datasets = {{"few", keep([](const at::Tensor& row) { return row.remainder(100) == 3; })},
                      {"half", keep([](const at::Tensor& row) { return row.remainder(2) == 0; })},
                      {"front", keep([](const at::Tensor& row) { return row < 100; })},
                      {"all", keep([](const at::Tensor& row) { return row >= 0; })},
                      {"once", rows.filter([](const data::Batch& batch) {
                                       return batch["row"].remainder(2) == 0;
                                   })
                                   .counted()}}});
    trainer.fit([&](auto& worker) {
        for (const std::string name : {"few", "half", "front", "all", "once"}) {
            CAPTURE(name);
            auto batches = worker.dataset_shard(name).batches({.size = 4, .shuffle = true});
            std::int64_t steps = 0;
            auto counts = torch::zeros(600, torch::kLong);
            for (auto& batch : batches) {
                ++steps;
                counts.index_add_(0, batch["row"], torch::ones_like(batch["row"]));
                if (name != "once") { // the last step may have one row more on some rank
                    const auto rows_of_ranks = worker.all_gather(batch.size());
                    CHECK(rows_of_ranks == std::vector(rows_of_ranks.size(), batch.size()));
                }
            }
            const auto steps_of_ranks = worker.all_gather(steps);
            CHECK(steps_of_ranks == std::vector(steps_of_ranks.size(), steps));
            worker.all_reduce(counts);
            CHECK(counts.max().template item<std::int64_t>() <= 1);
            const auto taken = counts.sum().template item<std::int64_t>();
            CHECK(taken + batches.left_out() >= (name == "all" ? 600 : 0));
            CHECK(taken <= 600);
            CHECK(taken > 0);
            CHECK((name != "once" || taken == 300));
            CHECK((name != "half" || taken >= 300 - 24 * size));
        }
        worker.report({});
    });
}

TEST_CASE("Loops.a_filter_that_throws_on_one_rank_ends_all" * doctest::timeout(60)) {
    const test::Directory directory("filter-throws");
    const auto rows = data::from_tensors({{"row", torch::arange(600)}});
    Trainer<backend::Mpi, data::Streaming> trainer(
        {.run = {.name = "throws", .storage_path = directory.path()},
         .datasets = {{"rows", rows.filter([](const data::Batch& batch) -> at::Tensor {
                           if (batch["row"].eq(599).any().item<bool>()) {
                               throw std::runtime_error("row 599");
                           }
                           return torch::ones_like(batch["row"], torch::kBool);
                       })}}});
    CHECK_THROWS_AS(trainer.fit([&](auto& worker) {
        for (const auto& batch : worker.dataset_shard("rows").batches({.size = 4})) {
            CHECK(batch.size() == 4);
        }
    }),
                    Error);
}
