// SPDX-License-Identifier: Apache-2.0
// XGBoost and LightGBM through their C interfaces, both in one process, without libtorch.
#include "rows.hpp"
#include "support/thrown.hpp"

#include <rtrain/gbdt/early_stopping.hpp>
#include <rtrain/gbdt/lightgbm/model.hpp>
#include <rtrain/gbdt/lightgbm/network.hpp>
#include <rtrain/gbdt/parameters.hpp>
#include <rtrain/gbdt/xgboost/model.hpp>
#include <rtrain/gbdt/xgboost/parameters.hpp>
#include <rtrain/gbdt/xgboost/ranks.hpp>

#include <doctest/doctest.h>

#include <barrier>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

using namespace rtrain;
using namespace rtrain::gbdt;
using test::code_of;
using test::Rows;

namespace {

const Parameters binary{{"objective", "binary:logistic"},
                        {"eval_metric", "logloss"},
                        {"eval_metric", "error"},
                        {"nthread", "2"}};
const std::string binary_text = "objective=binary metric=binary_logloss,auc num_threads=2 "
                                "verbosity=-1 deterministic=true force_col_wise=true";

std::string xgboost_model(int rounds) {
    Rows<float> rows(2000, 6, 1);
    xgboost::begin();
    const xgboost::Matrix matrix(rows, {.threads = 2});
    xgboost::Model model({matrix.get()});
    model.set(binary);
    model.set_features(rows.columns);
    for (int round = 0; round < rounds; ++round) {
        model.update(round, matrix);
    }
    return model.saved();
}
std::string lightgbm_model(int rounds) {
    Rows<double> rows(2000, 6, 1);
    lightgbm::begin();
    const lightgbm::Table table(rows, binary_text);
    lightgbm::Model model(table, binary_text);
    for (int round = 0; round < rounds; ++round) {
        model.update();
    }
    return model.saved();
}

/// Ranks that are threads of this process.
struct Threads final : lightgbm::Collectives {
    struct Shared {
        explicit Shared(int ranks) : meeting(ranks), data(static_cast<std::size_t>(ranks)) {}
        std::barrier<> meeting;
        std::vector<const std::byte*> data;
    };
    Threads(Shared& all, int number) : shared(all), mine(number) {}

    [[nodiscard]] int rank() const override { return mine; }
    [[nodiscard]] int size() const override { return static_cast<int>(shared.data.size()); }
    void all_gather(std::byte* data, const comm::Parts& parts) override {
        if (fails) {
            throw CommError("RT-X2", "as planned");
        }
        shared.data[static_cast<std::size_t>(mine)] = data;
        shared.meeting.arrive_and_wait();
        std::vector<std::byte> all(static_cast<std::size_t>(parts.elements()));
        for (int rank = 0; rank < size(); ++rank) {
            std::memcpy(all.data() + parts.begin(rank),
                        shared.data[static_cast<std::size_t>(rank)] + parts.begin(rank),
                        static_cast<std::size_t>(parts.count(rank)));
        }
        shared.meeting.arrive_and_wait();
        std::memcpy(data, all.data(), all.size());
    }
    void reduce_scatter(const std::byte* data, const comm::Parts& parts, std::byte* own,
                        const comm::Combining& combining) override {
        shared.data[static_cast<std::size_t>(mine)] = data;
        shared.meeting.arrive_and_wait();
        const auto element = static_cast<std::int64_t>(combining.element);
        std::vector<const std::byte*> sources;
        for (const std::byte* const source : shared.data) {
            sources.push_back(source + parts.begin(mine) * element);
        }
        std::vector<std::byte> reduced(static_cast<std::size_t>(parts.count(mine) * element));
        std::byte* const target = reduced.data();
        combining.run({&target, 1}, sources, parts.count(mine));
        shared.meeting.arrive_and_wait();
        std::memcpy(own, reduced.data(), reduced.size());
    }

    Shared& shared;
    int mine;
    bool fails = false;
};

} // namespace

TEST_CASE("XGBoost.trains_evaluates_and_predicts") {
    Rows<float> rows(2000, 6, 1);
    Rows<float> others(500, 6, 2);
    xgboost::begin();
    const xgboost::Matrix matrix(rows, {.threads = 2});
    const xgboost::Matrix valid(others, {.threads = 2}, &matrix);
    CHECK(matrix.rows() == 2000);
    xgboost::Model model({matrix.get(), valid.get()});
    model.set(binary);
    model.set_features(rows.columns);
    Metrics first;
    Metrics last;
    for (int round = 0; round < 5; ++round) {
        model.update(round, matrix);
        last = model.evaluate(round, {{"train", &matrix}, {"valid", &valid}});
        first = round == 0 ? last : first;
    }
    REQUIRE(last.size() == 4);
    CHECK(last[0].first == "train-logloss");
    CHECK(last[3].first == "valid-error");
    CHECK(last[0].second < first[0].second);
    CHECK(model.rounds() == 5);
    CHECK(model.features() == 6);
    const auto odds = model.predict(others.values.data(), 500);
    CHECK(odds.rows == 500);
    CHECK(odds.columns == 1);
    double loss = 0; // as XGBoost computes it
    for (std::int64_t i = 0; i < 500; ++i) {
        const double p = odds.values[i];
        loss -= others.labels[static_cast<std::size_t>(i)] > 0 ? std::log(p) : std::log(1 - p);
    }
    CHECK(loss / 500 == doctest::Approx(last[2].second).epsilon(1e-5));
    CHECK(!model.importance("gain").empty());
}

TEST_CASE("XGBoost.keeps_values_for_methods_that_need_them") {
    Rows<float> rows(800, 4, 3);
    xgboost::begin();
    const xgboost::Matrix matrix(rows, {.keeps_values = true});
    xgboost::Model model({matrix.get()});
    model.set({{"tree_method", "exact"}, {"objective", "binary:logistic"}});
    model.update(0, matrix);
    CHECK(model.evaluate(0, {{"train", &matrix}})[0].second < 0.6);
}

TEST_CASE("XGBoost.a_source_that_throws_is_heard") {
    Rows<float> rows(2000, 6, 1);
    rows.fails_at = 900;
    xgboost::begin();
    CHECK(code_of([&] { xgboost::Matrix matrix(rows, {}); }) == "RT-D6");
}

TEST_CASE("XGBoost.models_are_saved_and_loaded") {
    const std::string content = xgboost_model(3);
    xgboost::begin();
    xgboost::Model model;
    model.load(content, "model.ubj");
    CHECK(model.rounds() == 3);
    CHECK(model.feature_names().at(5) == "f5");
    CHECK(model.saved() == content);
    CHECK(code_of([&] { model.load(lightgbm_model(1), "model.txt"); }) == "RT-G11");
    CHECK(code_of([&] { model.load(content.substr(0, 500), "model.ubj"); }) == "RT-G11");
}

TEST_CASE("XGBoost.unknown_parameters_are_errors") {
    xgboost::require_known(binary);
    xgboost::require_known({{"eta", "0.1"}, {"alpha", "1"}, {"seed", "3"}});
    const auto message = test::message_of([] { xgboost::require_known({{"max_detph", "3"}}); });
    CHECK(message.find("did you mean \"max_depth\"?") != std::string::npos);
    CHECK(message.find("RT-G6") != std::string::npos);
    CHECK(code_of([] { xgboost::require_known({{"max_depth", "three"}}); }) == "RT-G12");
}

TEST_CASE("XGBoost.ranks_train_one_model_and_an_error_frees_the_others") {
    constexpr int size = 3;
    std::mutex mutex;
    std::condition_variable known;
    std::string arguments;
    std::vector<std::string> models(size);
    std::vector<std::string> codes(size);
    std::vector<std::thread> ranks; // XGBoost's connections belong to a thread
    for (int rank = 0; rank < size; ++rank) {
        ranks.emplace_back([&, rank] {
            const auto i = static_cast<std::size_t>(rank);
            codes[i] = code_of([&] {
                xgboost::begin();
                const xgboost::TrackedRanks all(
                    rank, size, "127.0.0.1", [&](const std::string& text) {
                        std::unique_lock lock(mutex);
                        if (rank == 0) {
                            arguments = text;
                            known.notify_all();
                        }
                        known.wait(lock, [&] { return !arguments.empty(); });
                        return arguments;
                    });
                Rows<float> rows(700, 6, static_cast<unsigned>(rank) + 1);
                const xgboost::Matrix matrix(rows, {});
                xgboost::Model model({matrix.get()});
                model.set(binary);
                for (int round = 0; round < 4; ++round) {
                    model.update(round, matrix);
                    CHECK(model.evaluate(round, {{"train", &matrix}}).size() == 2);
                }
                models[i] = model.saved();
                if (rank == 1) {
                    throw DataError("RT-D6", "as planned");
                }
                model.update(4, matrix);
            });
        });
    }
    for (std::thread& rank : ranks) {
        rank.join();
    }
    CHECK(models[0] == models[1]);
    CHECK(models[0] == models[2]);
    CHECK(codes == std::vector<std::string>{"RT-G17", "RT-D6", "RT-G17"});
    CHECK(caused_by_another("RT-G17"));
}

TEST_CASE("XGBoost.must_number_ranks_as_rtrain_does") {
    xgboost::begin();
    const xgboost::Tracker tracker(2, "127.0.0.1");
    std::vector<std::string> codes(2);
    std::vector<std::thread> ranks;
    for (const int rank : {3, 5}) { // which are 0 and 1 to XGBoost
        ranks.emplace_back([&, rank] {
            codes[rank == 3 ? 0 : 1] = code_of([&] {
                const xgboost::TrackedRanks all(
                    rank, 2, "", [&](const std::string& /*text*/) { return tracker.arguments(); });
            });
        });
    }
    for (std::thread& rank : ranks) {
        rank.join();
    }
    CHECK(codes == std::vector<std::string>{"RT-G16", "RT-G16"});
}

TEST_CASE("LightGBM.trains_evaluates_and_predicts") {
    Rows<double> rows(2000, 6, 1);
    Rows<double> others(500, 6, 2);
    lightgbm::begin();
    const lightgbm::Table table(rows, binary_text);
    const lightgbm::Table valid(others, binary_text, &table);
    lightgbm::Model model(table, binary_text);
    model.add(valid);
    double first = 0;
    for (int round = 0; round < 5; ++round) {
        CHECK(model.update());
        first = round == 0 ? model.evaluate(0, "train")[0].second : first;
    }
    const Metrics train = model.evaluate(0, "train");
    const Metrics last = model.evaluate(1, "valid");
    REQUIRE(last.size() == 2);
    CHECK(last[0].first == "valid-binary_logloss");
    CHECK(last[1].first == "valid-auc");
    CHECK(train[0].second < first);
    CHECK(model.rounds() == 5);
    const auto odds = model.predict(others.values.data(), 500, lightgbm::Predict::normal);
    double loss = 0;
    for (std::size_t i = 0; i < 500; ++i) {
        loss -= others.labels[i] > 0 ? std::log(odds[i]) : std::log(1 - odds[i]);
    }
    CHECK(loss / 500 == doctest::Approx(last[0].second).epsilon(1e-9));
    CHECK(model.importance("gain").size() == 6);
}

TEST_CASE("LightGBM.models_are_saved_and_loaded") {
    const std::string content = lightgbm_model(3);
    const lightgbm::Model model(content, "model.txt");
    CHECK(model.rounds() == 3);
    CHECK(model.feature_names().at(5) == "f5");
    CHECK(model.saved() == content);
    CHECK(code_of([&] { lightgbm::Model(xgboost_model(1), "model.ubj"); }) == "RT-G11");
    CHECK(code_of([&] { lightgbm::Model(content.substr(0, 900), "model.txt"); }) == "RT-G11");
}

TEST_CASE("LightGBM.an_empty_table_is_an_error") {
    Rows<double> rows(0, 6, 1);
    lightgbm::begin();
    CHECK(code_of([&] { lightgbm::Table table(rows, binary_text); }) == "RT-G9");
}

TEST_CASE("LightGBM.ranks_train_one_model_and_errors_of_collectives_come_back") {
    constexpr int size = 2;
    Threads::Shared shared(size);
    std::vector<std::string> models(size);
    std::vector<std::string> codes(size);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < size; ++rank) {
        ranks.emplace_back([&, rank] {
            const auto i = static_cast<std::size_t>(rank);
            lightgbm::begin();
            Threads all(shared, rank);
            const lightgbm::Network network(all);
            const std::string text =
                binary_text + " tree_learner=data num_machines=2 pre_partition=true";
            Rows<double> rows(1500, 6, static_cast<unsigned>(rank) + 1);
            const lightgbm::Table table(rows, text);
            lightgbm::Model model(table, text);
            for (int round = 0; round < 4; ++round) {
                CHECK(model.update());
            }
            models[i] = model.saved();
            shared.meeting.arrive_and_wait();
            all.fails = true;
            codes[i] = code_of([&] { static_cast<void>(model.update()); });
        });
    }
    for (std::thread& rank : ranks) {
        rank.join();
    }
    CHECK(models[0] == models[1]);
    CHECK(codes == std::vector<std::string>{"RT-X2", "RT-X2"});
}

TEST_CASE("Boosting.old_libraries_are_refused") {
    const auto message = test::message_of([] {
        require_version("XGBoost", "xgboost-cpu", {1, 7}, {2, 1});
    });
    CHECK(message.find("pip install --upgrade xgboost-cpu") != std::string::npos);
    CHECK(message.find("RT-G1]") != std::string::npos);
    require_version("XGBoost", "xgboost-cpu", {3, 0}, {2, 1});
}

TEST_CASE("Boosting.labels_are_checked") {
    check_label(2, 0, 3);
    check_label(-0.5, 0, 0);
    CHECK(code_of([] { check_label(std::nan(""), 4, 0); }) == "RT-G4");
    CHECK(code_of([] { check_label(1 / 0.0, 4, 0); }) == "RT-G4");
    CHECK(code_of([] { check_label(7, 4, 3); }) == "RT-G7");
    CHECK(code_of([] { check_label(0.5, 4, 3); }) == "RT-G7");
}

TEST_CASE("Boosting.parameters_are_text") {
    CHECK(text_of_value(0.3) == "0.3");
    CHECK(text_of_value(1e-5) == "1e-05");
    CHECK(text_of_value(7) == "7");
    CHECK(text_of_value(true) == "true");
    CHECK(text_of_array({1, -1, 0}) == "1,-1,0");
}

TEST_CASE("Boosting.early_stopping_survives_a_restart") {
    EarlyStopping stopping;
    stopping.observe(0, {"valid-auc", 0.7}, 2);
    stopping.observe(1, {"valid-auc", 0.8}, 2);
    stopping.observe(2, {"valid-auc", 0.75}, 2);
    CHECK(!stopping.has_stopped());
    EarlyStopping restored;
    restored.restore(stopping.saved());
    restored.observe(3, {"valid-auc", 0.79}, 2);
    CHECK(restored.has_stopped());
    EarlyStopping smaller;
    smaller.observe(0, {"valid-logloss", 0.7}, 1);
    smaller.observe(1, {"valid-logloss", 0.6}, 1);
    CHECK(!smaller.has_stopped());
}
