// SPDX-License-Identifier: Apache-2.0
// XGBoost and LightGBM in training functions and in their trainers, on 1 to 4 ranks and on several
// nodes; the files that tests/gbdt/python_test.py compares with the libraries' own training.
#include "support/ranks.hpp"
#include "support/training.hpp"

#include <rtrain/gbdt/booster.hpp>
#include <rtrain/gbdt/row_batches.hpp>
#include <rtrain/lightgbm.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/tuner.hpp>
#include <rtrain/xgboost.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <concepts>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace rtrain;
using test::code_of;
using test::contains;

namespace {

/// 30 rows of every 31 have a value of "b"; "c" is a category.
data::Dataset table(std::int64_t rows, std::int64_t seed) {
    const auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(seed));
    const at::Tensor a = torch::randn({rows}, generator);
    at::Tensor b = torch::randn({rows}, generator);
    b.index_put_({torch::arange(0, rows, 31)}, std::numeric_limits<float>::quiet_NaN());
    const at::Tensor c = torch::randint(0, 5, {rows}, generator);
    const at::Tensor d = torch::randn({rows, 2}, generator);
    const at::Tensor y = ((a * b.nan_to_num(0.3) + 0.5 * (c == 2) + d.select(1, 0)) > 0);
    return data::from_tensors({{"a", a}, {"b", b}, {"y", y.to(torch::kFloat)}, {"c", c}, {"d", d}});
}

Config xgboost_params() {
    return {{"objective", "binary:logistic"}, {"eval_metric", {"logloss", "error"}}, {"eta", 0.3}};
}
Config lightgbm_params() {
    return {{"objective", "binary"}, {"metric", "binary_logloss"}, {"min_data_in_leaf", 5}};
}

template <class Library>
Config params_of() {
    return std::is_same_v<Library, gbdt::xgboost::Library> ? xgboost_params() : lightgbm_params();
}

template <class Library>
struct Boosted {
    std::filesystem::path directory;
    std::string name = "run";
    gbdt::TrainOptions options = {.evals = {"train", "valid"},
                                  .label_column = "y",
                                  .num_boost_round = 8,
                                  .categorical_columns = {"c"}};
    Config params = params_of<Library>();
    data::Datasets datasets = {{"train", table(1500, 1)}, {"valid", table(400, 2)}};
    int max_failures = 0;
    stop::Conditions stop = {};

    /// The model's content on this rank, and the run.
    std::pair<std::string, Result> fit() const {
        std::string content;
        Trainer<backend::Mpi, data::Permuted> trainer(
            {.config = params,
             .scaling = {.threads_per_worker = 1},
             .run = {.name = name,
                     .storage_path = directory,
                     .failure = {.max_failures = max_failures, .backoff_s = 0},
                     .stop = stop},
             .datasets = datasets});
        Result result = trainer.fit([&](auto& worker, const Config& config) {
            content = gbdt::train<Library>(worker, config, options).content();
            const auto all =
                worker.all_gather(static_cast<std::int64_t>(std::hash<std::string>{}(content)));
            CHECK(std::ranges::count(all, all.front()) == worker.size());
        });
        return {content, std::move(result)};
    }
};

template <class Library>
void check_equal_models() {
    for (const gbdt::Ranks ranks : {gbdt::Ranks::one_per_node, gbdt::Ranks::all}) {
        const test::Directory directory("boosting");
        Boosted<Library> run{.directory = directory.path()};
        run.options.ranks = ranks;
        const auto [content, result] = run.fit();
        CHECK(result.metrics_history.size() == 8);
        CHECK(result.metric("round") == 8);
        run.name = "again";
        CHECK(run.fit().first == content);
        const auto booster = typename Library::Booster(content);
        CHECK(booster.rounds() == 8);
        CHECK(booster.feature_names() == std::vector<std::string>{"a", "b", "c", "d_0", "d_1"});
        const at::Tensor odds = booster.predict(run.datasets.at("valid"));
        CHECK(odds.size(0) == 400);
        CHECK(odds.min().item<double>() > 0);
        CHECK(odds.max().item<double>() < 1);
        const at::Tensor labels = run.datasets.at("valid").take(400)["y"].to(odds.scalar_type());
        const auto loss = torch::binary_cross_entropy(odds, labels).item<double>();
        const char* const metric = std::is_same_v<Library, gbdt::xgboost::Library>
                                       ? "valid-logloss"
                                       : "valid-binary_logloss";
        CHECK(loss == doctest::Approx(result.metric(metric)).epsilon(1e-5));
        CHECK(loss < 0.5);
    }
}

template <class Library>
void check_resumption() {
    const test::Directory directory("boosting");
    Boosted<Library> whole{.directory = directory.path(), .name = "whole"};
    const auto [content, expected] = whole.fit();
    Boosted<Library> broken{.directory = directory.path(), .name = "broken"};
    bool has_thrown = false;
    const int thrower = launch::ranks().value_or(1) - 1;
    broken.options.report.frequency = 1;
    broken.options.callbacks.emplace_back([&](const gbdt::Round& round) {
        if (round.number == 4 && !has_thrown && launch::rank().value_or(0) == thrower) {
            has_thrown = true;
            throw std::runtime_error("as planned");
        }
    });
    CHECK(test::message_of([&] { (void)broken.fit(); }).find("RT-T1") != std::string::npos);
    const auto [resumed, result] = broken.fit(); // the next start resumes after round 4
    CHECK(result.metrics_history.size() == 8);
    CHECK(typename Library::Booster(resumed).rounds() == 8);
    for (const auto& metric : expected.metrics) {
        const std::string name = metric.key();
        if (name.starts_with("valid-")) {
            CHECK(std::abs(expected.metric(name) - result.metric(name)) < 1e-6);
        }
    }
    broken.name = "in-place";
    broken.max_failures = 1;
    has_thrown = false;
    CHECK(typename Library::Booster(broken.fit().first).rounds() == 8); // in the same processes
    if constexpr (std::is_same_v<Library, gbdt::xgboost::Library>) {
        CHECK(resumed == content); // without random numbers, as docs/boosting.md says
    }
}

/// The code with which such a run ends, on all ranks.
template <class Library>
std::string refused(const std::function<void(Boosted<Library>&)>& change) {
    const test::Directory directory("boosting");
    Boosted<Library> run{.directory = directory.path()};
    run.options.ranks = gbdt::Ranks::all;
    change(run);
    std::string message = test::message_of([&] { (void)run.fit(); });
    const auto code = message.find("RT-G");
    return code == std::string::npos ? message : message.substr(code, message.find(']') - code);
}

template <class Library>
void check_bad_input() {
    using R = Boosted<Library>;
    const auto code = refused<Library>;
    CHECK(code([](R& run) { run.options.label_column = "z"; }) == "RT-G2");
    CHECK(code([](R& run) { run.options.label_column = ""; }) == "RT-G2");
    CHECK(code([](R& run) { run.options.label_column = "d"; }) == "RT-G2");
    for (const char* const label : {"y", "t"}) { // text as a feature and as a label
        CHECK(code([&](R& run) {
                  run.options.label_column = label;
                  run.datasets.at("train") = run.datasets.at("train").map_batches(
                      [](const data::Batch& rows) -> data::Batch {
                          return {rows.columns(),
                                  {{"t",
                                    {torch::full({rows.size()}, 65, torch::kByte),
                                     torch::arange(0, rows.size() + 1)}}}};
                      });
              }) == "RT-G3");
    }
    CHECK(code([](R& run) {
              run.datasets.at("valid") =
                  run.datasets.at("valid").map_batches([](data::Batch batch) {
                      batch["y"] = batch["y"] / 0;
                      return batch;
                  });
          }) == "RT-G4");
    CHECK(code([](R& run) {
              run.datasets.at("valid") = run.datasets.at("valid").select_columns({"a", "c", "y"});
          }) == "RT-G5");
    CHECK(code([](R& run) { run.params["max_detph"] = 3; }) == "RT-G6");
    CHECK(code([](R& run) {
              const bool is_xgboost = std::is_same_v<Library, gbdt::xgboost::Library>;
              run.params = {{"objective", is_xgboost ? "multi:softprob" : "multiclass"},
                            {"num_class", 3}};
              run.datasets.at("train") =
                  run.datasets.at("train").map_batches([](data::Batch batch) {
                      batch["y"] = batch["y"] * 7;
                      return batch;
                  });
          }) == "RT-G7");
    CHECK(code([](R& run) { run.options.num_boost_round = 0; }) == "RT-G8");
    CHECK(code([](R& run) { run.params["num_threads"] = 4; }) ==
          (std::is_same_v<Library, gbdt::xgboost::Library> ? "RT-G6" : "RT-G10"));
    CHECK(code([](R& run) {
              run.options.evals.clear();
              run.options.early_stopping_rounds = 2;
          }) == "RT-G15");
    if (launch::ranks().value_or(1) > 1) {
        CHECK(code([](R& run) { run.datasets.at("valid") = table(1, 1); }) == "RT-G9");
    }
}

} // namespace

TEST_CASE("Boosting.xgboost_models_are_equal_on_all_ranks_and_in_every_run" *
          doctest::timeout(120)) {
    check_equal_models<gbdt::xgboost::Library>();
}
TEST_CASE("Boosting.lightgbm_models_are_equal_on_all_ranks_and_in_every_run" *
          doctest::timeout(120)) {
    check_equal_models<gbdt::lightgbm::Library>();
}
TEST_CASE("Boosting.xgboost_resumes_after_a_failure" * doctest::timeout(120)) {
    check_resumption<gbdt::xgboost::Library>();
}
TEST_CASE("Boosting.lightgbm_resumes_after_a_failure" * doctest::timeout(120)) {
    check_resumption<gbdt::lightgbm::Library>();
}
TEST_CASE("Boosting.xgboost_refuses_bad_input" * doctest::timeout(120)) {
    check_bad_input<gbdt::xgboost::Library>();
    using R = Boosted<gbdt::xgboost::Library>;
    const auto code = refused<gbdt::xgboost::Library>;
    CHECK(code([](R& run) { run.params["nthread"] = 4; }) == "RT-G10");
    CHECK(code([](R& run) { run.params["device"] = "cuda"; }) == "RT-G10");
    CHECK(code([](R& run) { run.params["objective"] = "binary:logistics"; }) == "RT-G12");
}
TEST_CASE("Boosting.lightgbm_refuses_bad_input" * doctest::timeout(120)) {
    check_bad_input<gbdt::lightgbm::Library>();
    using R = Boosted<gbdt::lightgbm::Library>;
    const auto code = refused<gbdt::lightgbm::Library>;
    CHECK(code([](R& run) { run.params["machines"] = "a:1,b:2"; }) == "RT-G10");
    const std::string message = test::message_of([] {
        (void)gbdt::lightgbm::Library::parameters({{"num_leafs", 3}}, {});
    });
    CHECK(contains(message, "did you mean \"num_leaf\"?"));
    CHECK(contains(message, "RT-G6"));
    if (launch::ranks().value_or(1) > 1) {
        CHECK(code([](R& run) { run.params["tree_learner"] = "serial"; }) == "RT-G10");
        CHECK(code([](R& run) { run.params["tree_learner"] = "feature"; }) == "RT-G10");
    }
}

TEST_CASE("Boosting.lightgbm_learners_train_one_model" * doctest::timeout(120)) {
    for (const char* const learner : {"data", "voting"}) {
        const test::Directory directory("boosting");
        Boosted<gbdt::lightgbm::Library> run{.directory = directory.path()};
        run.options.ranks = gbdt::Ranks::all;
        run.params["tree_learner"] = learner;
        const auto [content, result] = run.fit();
        CHECK(gbdt::lightgbm::Booster(content).rounds() == 8);
        CHECK(result.metric("valid-binary_logloss") < 0.5);
    }
}

TEST_CASE("Boosting.a_run_stops_early" * doctest::timeout(120)) {
    const test::Directory directory("boosting");
    Boosted<gbdt::xgboost::Library> run{.directory = directory.path()};
    run.params["eta"] = 3.0; // diverges
    run.params["eval_metric"] = "logloss";
    run.options.num_boost_round = 60;
    run.options.early_stopping_rounds = 3;
    const auto [content, result] = run.fit();
    const int rounds = gbdt::xgboost::Booster(content).rounds();
    CHECK(rounds < 60);
    REQUIRE(result.checkpoint);
    CHECK(XGBoostTrainer::get_model(*result.checkpoint).rounds() == rounds);

    Boosted<gbdt::xgboost::Library> stopped{.directory = directory.path(), .name = "stopped"};
    stopped.stop = {stop::MaxIterations{3}};
    CHECK(gbdt::xgboost::Booster(stopped.fit().first).rounds() == 3);
}

TEST_CASE("Boosting.trainers_train_and_their_models_load" * doctest::timeout(120)) {
    const test::Directory directory("boosting");
    const data::Dataset train = table(600, 1);
    const data::Dataset valid = table(200, 2);
    XGBoostTrainer xgboost{{.params = xgboost_params(),
                            .label_column = "y",
                            .num_boost_round = 6,
                            .run = {.name = "xgboost",
                                    .storage_path = directory.path(),
                                    .checkpoint = {.num_to_keep = 1, .frequency = 2}},
                            .datasets = {{"train", train}, {"valid", valid}}}};
    const Result first = xgboost.fit();
    REQUIRE(first.checkpoint);
    CHECK(first.metrics.contains("train-logloss"));
    CHECK(first.metrics.contains("valid-error"));
    const auto model = XGBoostTrainer::get_model(*first.checkpoint);
    CHECK(model.rounds() == 6);
    CHECK(code_of([&] { (void)LightGBMTrainer::get_model(*first.checkpoint); }) == "RT-G14");
    CHECK(code_of([&] { (void)model.predict(valid.select_columns({"a"})); }) == "RT-G5");
    const at::Tensor margin = model.predict(valid, {.margin = true});
    CHECK(torch::allclose(torch::sigmoid(margin), model.predict(valid), 0, 1e-6));
    CHECK(!model.predict(valid, {.rounds = 1}).equal(model.predict(valid)));
    // Columns in a different order are found by name.
    CHECK(model.predict(valid.select_columns({"d", "c", "b", "a"})).equal(model.predict(valid)));

    LightGBMTrainer lightgbm{{.params = lightgbm_params(),
                              .label_column = "y",
                              .num_boost_round = 6,
                              .run = {.name = "lightgbm", .storage_path = directory.path()},
                              .datasets = {{"train", train}, {"valid", valid}}}};
    const Result second = lightgbm.fit();
    REQUIRE(second.checkpoint);
    const auto other = LightGBMTrainer::get_model(*second.checkpoint);
    CHECK(other.rounds() == 6);
    CHECK(other.predict(valid).size(0) == 200);
    CHECK(other.feature_importance("gain").size() == 5);

    // A new run continues from that model.
    LightGBMTrainer continued{{.params = lightgbm_params(),
                               .label_column = "y",
                               .num_boost_round = 9,
                               .run = {.name = "continued", .storage_path = directory.path()},
                               .datasets = {{"train", train}, {"valid", valid}},
                               .resume_from = second.checkpoint}};
    const Result third = continued.fit();
    CHECK(LightGBMTrainer::get_model(*third.checkpoint).rounds() == 9);
    CHECK(third.metric("train-binary_logloss") < second.metric("train-binary_logloss"));
}

TEST_CASE("Boosting.several_classes_weights_margins_and_queries" * doctest::timeout(120)) {
    const auto with_more = [](const data::Dataset& rows) {
        return rows.map_batches([](data::Batch batch) {
            data::Batch::Columns columns = batch.columns();
            const at::Tensor a = batch["a"];
            columns.emplace_back("class", (a > -0.5).to(torch::kLong) + (a > 0.5).to(torch::kLong));
            columns.emplace_back("weight", a.abs() + 0.1);
            columns.emplace_back("query", torch::arange(batch.size()).div(10, "floor"));
            return data::Batch(columns);
        });
    };
    for (const bool is_xgboost : {true, false}) {
        const test::Directory directory("boosting");
        const auto train = with_more(table(900, 1));
        BoostingOptions options{
            .params = {{"objective", is_xgboost ? "multi:softprob" : "multiclass"},
                       {"num_class", 3}},
            .label_column = "class",
            .num_boost_round = 5,
            .run = {.name = "classes", .storage_path = directory.path()},
            .datasets = {{"train", train.select_columns({"a", "d", "class", "weight"})}},
            .ranks = gbdt::Ranks::all,
            .weight_column = "weight"};
        const auto rows = train.take(900);
        const auto right = [&](const at::Tensor& odds) {
            return odds.argmax(1).eq(rows["class"]).to(torch::kFloat).mean().item<double>();
        };
        BoostingOptions ranking{
            .params = {{"objective", is_xgboost ? "rank:ndcg" : "lambdarank"}},
            .label_column = "class",
            .num_boost_round = 3,
            .run = {.name = "ranking", .storage_path = directory.path()},
            .datasets = {{"train", train.select_columns({"a", "d", "class", "query"})}},
            .ranks = gbdt::Ranks::all,
            .query_column = "query"};
        if (is_xgboost) {
            const auto result = XGBoostTrainer(options).fit();
            CHECK(right(XGBoostTrainer::get_model(*result.checkpoint).predict(train)) > 0.95);
            CHECK(XGBoostTrainer(ranking).fit().checkpoint);
        } else {
            const auto result = LightGBMTrainer(options).fit();
            CHECK(right(LightGBMTrainer::get_model(*result.checkpoint).predict(train)) > 0.95);
            CHECK(LightGBMTrainer(ranking).fit().checkpoint);
        }
    }
}

TEST_CASE("Boosting.margins_and_bounds_of_labels_are_learned_from" * doctest::timeout(120)) {
    const test::Directory directory("boosting");
    const auto rows = table(600, 1).map_batches([](data::Batch batch) {
        data::Batch::Columns columns = batch.columns();
        const at::Tensor time = (batch["a"] * 0.5).exp();
        columns.emplace_back("margin", (batch["y"] - 0.5) * 20); // says which rows are 1
        columns.emplace_back("least", time);
        columns.emplace_back("most",
                             torch::where(batch["y"] > 0, time, time.new_full({}, INFINITY)));
        return data::Batch(columns);
    });
    const auto options = [&](const char* name, const std::vector<std::string>& columns) {
        return BoostingOptions{.num_boost_round = 4,
                               .run = {.name = name, .storage_path = directory.path()},
                               .datasets = {{"train", rows.select_columns(columns)}}};
    };
    BoostingOptions margins = options("margins", {"a", "y", "margin"});
    margins.params = {{"objective", "binary:logistic"}, {"eval_metric", "logloss"}};
    margins.label_column = "y";
    margins.base_margin_columns = {"margin"};
    CHECK(XGBoostTrainer(margins).fit().metric("train-logloss") < 1e-3);
    margins.run.name = "margins-lightgbm";
    margins.params = {{"objective", "binary"}, {"metric", "binary_logloss"}};
    CHECK(LightGBMTrainer(margins).fit().metric("train-binary_logloss") < 1e-3);

    BoostingOptions bounds = options("bounds", {"a", "least", "most"});
    bounds.params = {{"objective", "survival:aft"}, {"eval_metric", "aft-nloglik"}};
    bounds.label_lower_bound_column = "least";
    bounds.label_upper_bound_column = "most";
    const Result result = XGBoostTrainer(bounds).fit();
    const at::Tensor times = XGBoostTrainer::get_model(*result.checkpoint).predict(rows);
    const at::Tensor a = rows.take(600)["a"];
    CHECK(times.index({a > 0}).mean().item<double>() > times.index({a < 0}).mean().item<double>());
}

namespace {

/// examples/data/breast_cancer.csv: 569 rows, the label in column "y".
data::Dataset breast_cancer() {
    std::ifstream file(RTRAIN_EXAMPLE_DATA "/breast_cancer.csv");
    std::vector<std::string> names;
    std::vector<double> values;
    for (std::string line; std::getline(file, line);) {
        std::istringstream cells(line);
        const bool is_header = names.empty();
        for (std::string cell; std::getline(cells, cell, ',');) {
            is_header ? names.push_back(cell) : values.push_back(std::stod(cell));
        }
    }
    names.back() = "y";
    const at::Tensor rows =
        torch::tensor(values, torch::kDouble).view({-1, std::ssize(names)}).to(torch::kFloat);
    data::Batch::Columns columns;
    for (std::size_t i = 0; i < names.size(); ++i) {
        columns.emplace_back(names[i], rows.select(1, static_cast<std::int64_t>(i)).contiguous());
    }
    return data::from_tensors(columns);
}

/// What a booster in training can do, on each rank.
template <class Library>
void check_booster(typename Library::Booster booster, const data::Dataset& rows,
                   const std::filesystem::path& file) {
    using Booster = typename Library::Booster;
    CHECK(booster.rounds() == 8);
    const at::Tensor odds = booster.predict(rows);
    CHECK(odds.size(0) == rows.size());
    booster.save(file);
    Booster loaded = Booster::load(file);
    CHECK(loaded.predict(rows).equal(odds));
    CHECK(loaded.content() == booster.content());
    CHECK(loaded.feature_importance() == booster.feature_importance());
    CHECK(code_of([&] { loaded.update(); }) == "RT-G68");
    CHECK(code_of([&] { (void)loaded.eval(); }) == "RT-G68");
}

/// Trains by tables and a booster as train() does with Ranks::all.
template <class Library>
void check_tables(const Boosted<Library>& whole) {
    using Table = gbdt::TrainingTable<typename Library::Engine>;
    using Booster = typename Library::Booster;
    const auto [expected, result] = whole.fit();
    Trainer<backend::Mpi, data::Permuted> trainer(
        {.scaling = {.threads_per_worker = 1},
         .run = {.name = "tables", .storage_path = whole.directory},
         .datasets = whole.datasets});
    trainer.fit([&, expected = expected, metrics = result.metrics](auto& worker) {
        const gbdt::Connection<typename Library::Engine> connection(worker);
        const gbdt::TableColumns columns = whole.options.columns();
        const data::Shard rows = worker.dataset_shard("train");
        const data::Shard others = worker.dataset_shard("valid");
        const Table train(connection, rows, columns, whole.params);
        const Table valid = train.create_valid(others);
        CHECK(worker.all_reduce(train.rows()) == rows.dataset().size());
        Booster booster(whole.params, train, {{"train", train}, {"valid", valid}});
        std::string half;
        for (int round = 0; round < 8; ++round) {
            half = round == 4 ? booster.content() : half;
            booster.update();
        }
        CHECK(booster.content() == expected);
        for (const auto& [name, value] : booster.eval()) {
            CHECK(value == metrics.at(name));
        }
        check_booster<Library>(booster, others.dataset(),
                               whole.directory / (std::to_string(worker.rank()) + ".json"));

        const Table later(connection, rows, columns, whole.params, half);
        Booster continued(whole.params, later, {{"valid", later.create_valid(others)}});
        while (continued.rounds() < 8) {
            continued.update();
        }
        for (const auto& [name, value] : continued.eval()) {
            CHECK(std::abs(value - metrics.at(name).as_double()) < 1e-6);
        }
    });
}

/// Errors of tables and boosters: on all ranks, before they communicate in the library.
template <class Library>
void check_refused_tables() {
    using Table = gbdt::TrainingTable<typename Library::Engine>;
    const test::Directory directory("boosting");
    const data::Dataset train = table(300, 1);
    Trainer<backend::Mpi, data::Permuted> trainer(
        {.scaling = {.threads_per_worker = 1},
         .run = {.name = "refused", .storage_path = directory.path()},
         .datasets = {{"train", train},
                      {"narrow", train.select_columns({"a", "y"})},
                      {"infinite", train.map_batches([](data::Batch batch) {
                           batch["y"] = batch["y"] / 0;
                           return batch;
                       })}}});
    trainer.fit([&](auto& worker) {
        const gbdt::Connection<typename Library::Engine> connection(worker);
        const auto read = [&](const char* name, const std::string& label, const Config& params) {
            return Table(connection, worker.dataset_shard(name), {.label = label}, params);
        };
        const Config params = params_of<Library>();
        CHECK(code_of([&] { (void)read("train", "z", params); }) == "RT-G2");
        CHECK(code_of([&] { (void)read("infinite", "y", params); }) == "RT-G4");
        CHECK(code_of([&] {
                  (void)read("train", "y", params).create_valid(worker.dataset_shard("narrow"));
              }) == "RT-G5");
        CHECK(code_of([&] {
                  (void)typename Library::Booster({{"max_detph", 3}}, read("train", "y", params));
              }) == "RT-G6");
        CHECK(code_of([&] {
                  (void)typename Library::Booster({{"n_jobs", 3}}, read("train", "y", params));
              }) == "RT-G10");
        CHECK(code_of([&] {
                  (void)Table(connection, worker.dataset_shard("train"), {.label = "y"}, params,
                              "no model");
              }) == "RT-G11");
    });
}

template <class Library>
void check_custom_loop() {
    const test::Directory directory("boosting");
    Boosted<Library> whole{.directory = directory.path()};
    const std::string expected = whole.fit().first;
    Trainer<backend::Mpi, data::Permuted> trainer(
        {.scaling = {.threads_per_worker = 1},
         .run = {.name = "loop", .storage_path = directory.path()},
         .datasets = whole.datasets});
    const Result result = trainer.fit([&](auto& worker) {
        gbdt::RoundTraining<Library> training(worker, whole.params, whole.options);
        while (training.round() < 8) {
            training.update();
            worker.report(gbdt::json_of(training.evaluate()));
        }
        CHECK(training.booster().content() == expected);
    });
    CHECK(result.metrics_history.size() == 8);
}

} // namespace

TEST_CASE("Boosting.loops_over_rounds_are_also_the_callers" * doctest::timeout(120)) {
    check_custom_loop<gbdt::xgboost::Library>();
    check_custom_loop<gbdt::lightgbm::Library>();
}

TEST_CASE_TEMPLATE("Boosting.tables_and_boosters_train_as_train_does", Library,
                   gbdt::xgboost::Library, gbdt::lightgbm::Library) {
    const test::Directory directory("boosting");
    Boosted<Library> whole{.directory = directory.path()};
    whole.options.ranks = gbdt::Ranks::all;
    SUBCASE("with categories and missing values") {
        check_tables(whole);
    }
    SUBCASE("on real data") {
        const auto [train, valid] = breast_cancer().train_test_split(0.3, 1);
        whole.datasets = {{"train", train}, {"valid", valid}};
        whole.options.categorical_columns.clear();
        check_tables(whole);
    }
}
TEST_CASE_TEMPLATE("Boosting.tables_and_boosters_refuse_bad_input", Library, gbdt::xgboost::Library,
                   gbdt::lightgbm::Library) {
    check_refused_tables<Library>();
}

TEST_CASE("Boosting.gpus_are_parameters") {
    using gbdt::value_of;
    const gbdt::Team team{.device = "cuda:1"};
    const auto xgboost = gbdt::xgboost::Library::parameters({}, team);
    CHECK(value_of(xgboost, "device") == "cuda:1");
    const auto lightgbm = gbdt::lightgbm::Library::parameters({}, team);
    CHECK(value_of(lightgbm, "device_type") == "cuda");
    CHECK(value_of(gbdt::lightgbm::Library::parameters({}, {}), "device_type") == "cpu");
}

// A search takes a trainer of boosting as it is; examples/boosting_tune.cpp runs one.
static_assert(std::same_as<decltype(Tuner{std::declval<XGBoostTrainer>(), TunerOptions{}}),
                           Tuner<XGBoostTrainer::Runner, XGBoostTrainer::Function>>);
static_assert(std::same_as<decltype(Tuner{std::declval<LightGBMTrainer>(), TunerOptions{}}),
                           Tuner<LightGBMTrainer::Runner, LightGBMTrainer::Function>>);

TEST_CASE("Boosting.several_ranks_need_a_communicator" * doctest::timeout(60)) {
    const test::Directory directory("boosting");
    Trainer<> trainer({.run = {.name = "alone", .storage_path = directory.path()}});
    trainer.fit([](auto& worker) {
        const std::string code =
            code_of([&] { gbdt::TrainingRanks(worker, nullptr, gbdt::Ranks::all); });
        CHECK(code == (worker.size() > 1 ? "RT-G13" : ""));
    });
}

TEST_CASE("Exit.in_another_thread_is_caused_by_another_rank") {
    std::string code;
    ProcessContext::current().attempt.set_last_words(
        [&](const std::exception& error) { code = dynamic_cast<const Error&>(error).code(); });
    ProcessContext::current().attempt.begin([] {});
    comm::report_exit(false);
    ProcessContext::current().attempt.end();
    ProcessContext::current().attempt.set_last_words(nullptr);
    CHECK(code == "RT-X118");
    CHECK(caused_by_another("RT-X118"));
}

/// For python_test.py, in the directory RTRAIN_BOOSTING_FILES: a table, and models of it, which
/// each rank has trained.
TEST_CASE("Boosting.writes_for_python" *
          doctest::skip(std::getenv("RTRAIN_BOOSTING_FILES") == nullptr)) {
    const std::filesystem::path directory = std::getenv("RTRAIN_BOOSTING_FILES");
    const auto write = [&](const char* name, const at::Tensor& tensor) {
        const at::Tensor rows = tensor.contiguous();
        std::ofstream(directory / name, std::ios::binary)
            .write(static_cast<const char*>(rows.const_data_ptr()),
                   static_cast<std::streamsize>(rows.nbytes()));
    };
    const auto each = [&]<class Library>(Library, const std::string& name) {
        Boosted<Library> run{.directory = directory / "runs", .name = name};
        run.options.ranks = gbdt::Ranks::all;
        const auto [content, result] = run.fit();
        if (launch::rank().value_or(0) != 0) {
            return;
        }
        const typename Library::Booster booster(content);
        booster.save(directory / Library::filename);
        for (const char* const rows : {"train", "valid"}) {
            const auto batch = run.datasets.at(rows).take(1500);
            const at::Tensor x = data::numeric_rows(batch, {"a", "b", "c", "d"}, torch::kFloat);
            write(rows == std::string("train") ? "train_x.f4" : "valid_x.f4", x);
            write(rows == std::string("train") ? "train_y.f4" : "valid_y.f4", batch["y"]);
        }
        write((name + "_odds").c_str(), booster.predict(run.datasets.at("valid")));
        std::ofstream(directory / (name + ".json")) << json::serialize(result.metrics);
        // What Python has saved before.
        if (const auto file = directory / ("python_" + std::string(Library::filename));
            std::filesystem::exists(file)) {
            write((name + "_python_odds").c_str(),
                  Library::Booster::load(file).predict(run.datasets.at("valid")));
        }
    };
    each(gbdt::xgboost::Library{}, "xgboost");
    each(gbdt::lightgbm::Library{}, "lightgbm");
}
