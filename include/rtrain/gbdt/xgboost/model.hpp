// SPDX-License-Identifier: Apache-2.0
/// @file
/// Model: a booster of XGBoost through its C interface. Without libtorch.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/gbdt/row_block.hpp>
#include <rtrain/gbdt/xgboost/call.hpp>
#include <rtrain/gbdt/xgboost/matrix.hpp>

#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::gbdt::xgboost {

/// Predictions of a block of rows: `columns` numbers for each row. Valid until the next call of
/// the model.
struct Predictions {
    const float* values = nullptr;
    std::int64_t rows = 0;
    std::int64_t columns = 1;
};

class Model {
public:
    /// A model without trees. `matrices`, which outlive it, are those of update() and evaluate();
    /// it keeps their predictions.
    explicit Model(const std::vector<DMatrixHandle>& matrices = {}) {
        begin();
        BoosterHandle made = nullptr;
        check(XGBoosterCreate(matrices.data(), matrices.size(), &made), "XGBoosterCreate");
        handle_.reset(made);
    }

    /// Throws ModelError [RT-G12] for a value that XGBoost refuses.
    void set(const Parameters& parameters) {
        for (const auto& [name, value] : parameters) {
            check(XGBoosterSetParam(handle_.get(), name.c_str(), value.c_str()),
                  "XGBoosterSetParam");
        }
    }

    /// The features are saved with the model.
    void set_features(const Features& features) {
        each_feature_text(features, [&](const char* field, const char** texts, bst_ulong size) {
            check(XGBoosterSetStrFeatureInfo(handle_.get(), field, texts, size),
                  "XGBoosterSetStrFeatureInfo");
        });
    }

    /// Adds the trees of a round. Collective among the ranks that train.
    void update(int round, const Matrix& rows) {
        check(XGBoosterUpdateOneIter(handle_.get(), round, rows.get()), "XGBoosterUpdateOneIter");
    }
    /// Returns the metrics of tables, such as "train-logloss". Collective among the ranks that
    /// train.
    [[nodiscard]] Metrics
    evaluate(int round, const std::vector<std::pair<std::string, const Matrix*>>& tables) {
        std::vector<DMatrixHandle> matrices;
        std::vector<const char*> names;
        for (const auto& [name, matrix] : tables) {
            matrices.push_back(matrix->get());
            names.push_back(name.c_str());
        }
        const char* text = nullptr;
        check(XGBoosterEvalOneIter(handle_.get(), round, matrices.data(), names.data(),
                                   matrices.size(), &text),
              "XGBoosterEvalOneIter");
        return parsed_metrics(text);
    }

    /// Rounds of training so far.
    [[nodiscard]] int rounds() const {
        int rounds = 0;
        check(XGBoosterBoostedRounds(handle_.get(), &rounds), "XGBoosterBoostedRounds");
        return rounds;
    }
    [[nodiscard]] std::int64_t features() const {
        bst_ulong count = 0;
        check(XGBoosterGetNumFeature(handle_.get(), &count), "XGBoosterGetNumFeature");
        return static_cast<std::int64_t>(count);
    }
    /// Names of the features; empty if the model has none.
    [[nodiscard]] std::vector<std::string> feature_names() const {
        bst_ulong count = 0;
        const char** names = nullptr;
        check(XGBoosterGetStrFeatureInfo(handle_.get(), "feature_name", &count, &names),
              "XGBoosterGetStrFeatureInfo");
        return {names, names + count};
    }

    /// `margin`: sums of leaves instead of predictions of the objective. `rounds`: how many rounds
    /// count; 0: all.
    [[nodiscard]] Predictions predict(const float* values, std::int64_t rows, bool margin = false,
                                      int rounds = 0) const {
        const std::string config =
            detail::concat("{\"type\":", margin ? 1 : 0,
                           ",\"training\":false,\"iteration_begin\":0,"
                           "\"iteration_end\":",
                           rounds, ",\"missing\":NaN,\"strict_shape\":true,\"cache_id\":0}");
        const bst_ulong* shape = nullptr;
        bst_ulong dimensions = 0;
        Predictions made;
        check(XGBoosterPredictFromDense(handle_.get(),
                                        array_interface(values, rows, features()).c_str(),
                                        config.c_str(), nullptr, &shape, &dimensions, &made.values),
              "XGBoosterPredictFromDense");
        made.rows = static_cast<std::int64_t>(shape[0]);
        made.columns = dimensions > 1 ? static_cast<std::int64_t>(shape[1]) : 1;
        return made;
    }

    /// Importance of each feature that the model uses; `type` as in Python, such as "gain".
    [[nodiscard]] std::vector<std::pair<std::string, double>>
    importance(const std::string& type) const {
        bst_ulong count = 0;
        const char** names = nullptr;
        bst_ulong dimensions = 0;
        const bst_ulong* shape = nullptr;
        const float* scores = nullptr;
        const std::string config = detail::concat("{\"importance_type\":\"", type, "\"}");
        check(XGBoosterFeatureScore(handle_.get(), config.c_str(), &count, &names, &dimensions,
                                    &shape, &scores),
              "XGBoosterFeatureScore");
        std::vector<std::pair<std::string, double>> found;
        for (bst_ulong i = 0; i < count; ++i) {
            found.emplace_back(names[i], scores[i]);
        }
        return found;
    }

    /// The content of a model file: "ubj" or "json".
    [[nodiscard]] std::string saved(const std::string& format = "ubj") const {
        bst_ulong length = 0;
        const char* data = nullptr;
        const std::string config = detail::concat("{\"format\":\"", format, "\"}");
        check(XGBoosterSaveModelToBuffer(handle_.get(), config.c_str(), &length, &data),
              "XGBoosterSaveModelToBuffer");
        return {data, length};
    }
    /// Throws ModelError [RT-G11] for anything but a model of XGBoost. `file`: names it.
    void load(std::string_view content, const std::string& file) {
        if (XGBoosterLoadModelFromBuffer(handle_.get(), content.data(), content.size()) != 0) {
            throw ModelError("RT-G11",
                             detail::concat(file, " is not a model of XGBoost, or it is damaged: ",
                                            last_error(), "; use another checkpoint"));
        }
    }

    /// The configuration of the library, as JSON.
    [[nodiscard]] std::string config() const {
        bst_ulong length = 0;
        const char* text = nullptr;
        check(XGBoosterSaveJsonConfig(handle_.get(), &length, &text), "XGBoosterSaveJsonConfig");
        return {text, length};
    }

private:
    /// XGBoost's "[3]\ttrain-logloss:0.1\tvalid-auc:0.9".
    [[nodiscard]] static Metrics parsed_metrics(std::string_view text) {
        Metrics metrics;
        for (std::size_t tab = text.find('\t'); tab != std::string_view::npos;) {
            const std::size_t end = text.find('\t', tab + 1);
            const std::string_view part = text.substr(tab + 1, end - tab - 1);
            const std::size_t colon = part.rfind(':');
            double value = std::numeric_limits<double>::quiet_NaN(); // from_chars reads "nan", too
            (void)std::from_chars(part.data() + colon + 1, part.data() + part.size(), value);
            metrics.emplace_back(part.substr(0, colon), value);
            tab = end;
        }
        return metrics;
    }

    Handle<XGBoosterFree> handle_;
};

} // namespace rtrain::gbdt::xgboost
