// SPDX-License-Identifier: Apache-2.0
/// @file
/// Model: a booster of LightGBM through its C interface. Without libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/gbdt/lightgbm/call.hpp>
#include <rtrain/gbdt/lightgbm/table.hpp>
#include <rtrain/gbdt/row_block.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::gbdt::lightgbm {

/// Kinds of predictions in LightGBM's interface.
enum class Predict : int { normal = 0, raw_score = 1 };

class Model {
public:
    /// A model without trees, to be trained. `rows` outlives it. Collective among the ranks that
    /// train.
    Model(const Table& rows, const std::string& parameters) {
        BoosterHandle made = nullptr;
        check(LGBM_BoosterCreate(rows.get(), parameters.c_str(), &made), "LGBM_BoosterCreate");
        handle_.reset(made);
    }
    /// A model that predicts. Throws ModelError [RT-G11] for anything but a model of LightGBM.
    /// `file`: names it.
    Model(const std::string& content, const std::string& file) {
        begin();
        BoosterHandle made = nullptr;
        int rounds = 0;
        const bool is_whole = content.starts_with("tree\n") &&
                              content.find("\nend of parameters") != std::string::npos;
        if (!is_whole || LGBM_BoosterLoadModelFromString(content.c_str(), &rounds, &made) != 0) {
            throw ModelError(
                "RT-G11",
                detail::concat(file, " is not a model of LightGBM, or it is damaged: ",
                               is_whole ? LGBM_GetLastError() : "its begin or end is missing",
                               "; use another checkpoint"));
        }
        handle_.reset(made);
    }

    /// A table that evaluate() can evaluate, as the next number from 1; it outlives the model.
    void add(const Table& rows) {
        check(LGBM_BoosterAddValidData(handle_.get(), rows.get()), "LGBM_BoosterAddValidData");
    }
    /// Puts the trees of an earlier model before those of this one.
    void continue_from(const Model& earlier) {
        check(LGBM_BoosterMerge(handle_.get(), earlier.handle_.get()), "LGBM_BoosterMerge");
    }

    /// Adds the trees of a round; false if no leaf could be split. Collective among the ranks that
    /// train.
    bool update() {
        int is_finished = 0;
        check(LGBM_BoosterUpdateOneIter(handle_.get(), &is_finished), "LGBM_BoosterUpdateOneIter");
        return is_finished == 0;
    }
    /// Returns the metrics of a table, such as "train-auc". Collective among the ranks that train.
    [[nodiscard]] Metrics evaluate(int table, const std::string& name) {
        int count = 0;
        check(LGBM_BoosterGetEvalCounts(handle_.get(), &count), "LGBM_BoosterGetEvalCounts");
        const auto names = names_of(
            [&](int most, int* found, std::size_t size, std::size_t* needed, char** texts) {
                return LGBM_BoosterGetEvalNames(handle_.get(), most, found, size, needed, texts);
            },
            "LGBM_BoosterGetEvalNames");
        std::vector<double> values(static_cast<std::size_t>(count));
        check(LGBM_BoosterGetEval(handle_.get(), table, &count, values.data()),
              "LGBM_BoosterGetEval");
        Metrics metrics;
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
            metrics.emplace_back(detail::concat(name, '-', names[i]), values[i]);
        }
        return metrics;
    }

    /// Rounds of training so far.
    [[nodiscard]] int rounds() const {
        return number(LGBM_BoosterGetCurrentIteration, "LGBM_BoosterGetCurrentIteration");
    }
    [[nodiscard]] std::int64_t features() const {
        return number(LGBM_BoosterGetNumFeature, "LGBM_BoosterGetNumFeature");
    }
    [[nodiscard]] std::vector<std::string> feature_names() const {
        return names_of(
            [&](int most, int* found, std::size_t size, std::size_t* needed, char** texts) {
                return LGBM_BoosterGetFeatureNames(handle_.get(), most, found, size, needed, texts);
            },
            "LGBM_BoosterGetFeatureNames");
    }

    /// Predictions of rows: as many numbers for each row as the model has outputs. `rounds`: how
    /// many rounds count; 0: all. `threads`; 0: all.
    [[nodiscard]] std::vector<double> predict(const double* values, std::int64_t rows, Predict kind,
                                              int rounds = 0, int threads = 0) const {
        const std::string parameters = detail::concat("num_threads=", threads);
        const int limit = rounds == 0 ? -1 : rounds;
        std::int64_t count = 0;
        check(LGBM_BoosterCalcNumPredict(handle_.get(), static_cast<int>(rows),
                                         static_cast<int>(kind), 0, limit, &count),
              "LGBM_BoosterCalcNumPredict");
        std::vector<double> predictions(static_cast<std::size_t>(count));
        check(LGBM_BoosterPredictForMat(
                  handle_.get(), values, static_cast<int>(Type::float64),
                  static_cast<std::int32_t>(rows), static_cast<std::int32_t>(features()), 1,
                  static_cast<int>(kind), 0, limit, parameters.c_str(), &count, predictions.data()),
              "LGBM_BoosterPredictForMat");
        return predictions;
    }

    /// Importance of each feature; "split" or "gain".
    [[nodiscard]] std::vector<std::pair<std::string, double>>
    importance(const std::string& type) const {
        std::vector<double> scores(static_cast<std::size_t>(features()));
        check(
            LGBM_BoosterFeatureImportance(handle_.get(), 0, type == "gain" ? 1 : 0, scores.data()),
            "LGBM_BoosterFeatureImportance");
        std::vector<std::pair<std::string, double>> found;
        const auto names = feature_names();
        for (std::size_t i = 0; i < scores.size(); ++i) {
            found.emplace_back(names[i], scores[i]);
        }
        return found;
    }

    /// The content of a model file.
    [[nodiscard]] std::string saved() const {
        return text_of(
            [&](std::int64_t size, std::int64_t* length, char* text) {
                return LGBM_BoosterSaveModelToString(handle_.get(), 0, -1, 0, size, length, text);
            },
            "LGBM_BoosterSaveModelToString");
    }

private:
    struct Free {
        void operator()(void* handle) const noexcept { (void)LGBM_BoosterFree(handle); }
    };

    [[nodiscard]] int number(int (*get)(BoosterHandle, int*), const char* call) const {
        int value = 0;
        check(get(handle_.get(), &value), call);
        return value;
    }

    std::unique_ptr<void, Free> handle_;
};

} // namespace rtrain::gbdt::lightgbm
