// SPDX-License-Identifier: Apache-2.0
/// @file
/// XGBoost as a library of gbdt/training.hpp: its parameters, its learner, its booster.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/gbdt/booster.hpp>
#include <rtrain/gbdt/learner.hpp>
#include <rtrain/gbdt/names.hpp>
#include <rtrain/gbdt/parameters.hpp>
#include <rtrain/gbdt/prediction.hpp>
#include <rtrain/gbdt/team.hpp>
#include <rtrain/gbdt/xgboost/matrix.hpp>
#include <rtrain/gbdt/xgboost/model.hpp>
#include <rtrain/gbdt/xgboost/parameters.hpp>
#include <rtrain/gbdt/xgboost/ranks.hpp>
#include <rtrain/launch/control/own_address.hpp>
#include <rtrain/storage/file/file.hpp>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::gbdt::xgboost {

/// A model of XGBoost, trained or loaded.
class Booster : public BoosterBase<Booster, Model> {
public:
    static constexpr at::ScalarType scalar_type = at::kFloat; ///< of features and predictions

    /// Throws ModelError [RT-G11]. `name`: for messages.
    explicit Booster(const std::string& content, const std::string& name = "the model")
        : BoosterBase(std::make_shared<Model>()) {
        model_->load(content, name);
        model_->set({{"nthread", std::to_string(at::get_num_threads())}}); // of predictions
    }
    /// Saves a model file, which Python's xgboost loads, too.
    void save(const std::filesystem::path& file) const {
        storage::replace_file(file, model_->saved(file.extension() == ".json" ? "json" : "ubj"));
    }

    using BoosterBase::predict;
    /// The same for features of shape (rows, features).
    [[nodiscard]] at::Tensor predict(const at::Tensor& features,
                                     const PredictOptions& options = {}) const {
        const at::Tensor values = features.to(scalar_type).contiguous();
        const Predictions made = model_->predict(values.const_data_ptr<float>(), values.size(0),
                                                 options.margin, options.rounds);
        const at::Tensor rows = at::empty({made.rows, made.columns}, scalar_type);
        std::copy_n(made.values, made.rows * made.columns, rows.mutable_data_ptr<float>());
        return made.columns == 1 ? rows.squeeze(1) : rows;
    }

    /// Importance of the features that the model uses: "weight", "gain", "cover" and others.
    [[nodiscard]] std::vector<std::pair<std::string, double>>
    feature_importance(const std::string& type = "weight") const {
        return model_->importance(type);
    }
};

/// XGBoost in a training.
class TrainingModel final : public Learner {
public:
    explicit TrainingModel(LearnerInput<float> input) {
        begin();
        const Team& team = input.team;
        if (team.size > 1) {
            connection_.emplace(team.rank, team.size, address(team),
                                [&](const std::string& text) { return broadcast(team, text); });
        }
        const std::string bins = value_of(input.parameters, "max_bin");
        const std::string method = value_of(input.parameters, "tree_method");
        const MatrixOptions options{.max_bin = bins.empty() ? 256 : std::stoi(bins),
                                    .threads = team.threads,
                                    .keeps_values =
                                        method == "exact" || method == "approx" ||
                                        value_of(input.parameters, "booster") == "gblinear"};
        std::vector<DMatrixHandle> all;
        for (auto& [name, rows] : input.tables) {
            matrices_.push_back(std::make_unique<Matrix>(
                *rows, options, matrices_.empty() ? nullptr : matrices_.front().get()));
            all.push_back(matrices_.back()->get());
        }
        for (const std::size_t i : input.evaluated) {
            evaluated_.emplace_back(input.tables[i].first, matrices_[i].get());
        }
        model_.emplace(all);
        if (!input.resumed.empty()) {
            model_->load(input.resumed, "the checkpoint's model");
        }
        model_->set(input.parameters);
        model_->set_features(input.tables.front().second->features());
    }

    void update(int round) override { model_->update(round, *matrices_.front()); }
    [[nodiscard]] Metrics evaluate(int round) override {
        return evaluated_.empty() ? Metrics() : model_->evaluate(round, evaluated_);
    }
    [[nodiscard]] std::string saved() const override { return model_->saved(); }

private:
    [[nodiscard]] static std::string address(const Team& team) {
        if (team.on_one_node) {
            return "127.0.0.1";
        }
        boost::asio::io_context io;
        return launch::own_address(io, {}).to_string();
    }

    std::optional<TrackedRanks> connection_; ///< outlives the others
    std::vector<std::unique_ptr<Matrix>> matrices_;
    std::vector<std::pair<std::string, const Matrix*>> evaluated_;
    std::optional<Model> model_;
};

/// XGBoost for gbdt/training.hpp.
struct Library {
    using Booster = xgboost::Booster;
    using Value = float; ///< of features
    using Learner = TrainingModel;
    static constexpr const char* name = "XGBoost";
    static constexpr const char* filename = "model.ubj";

    /// Returns the parameters as text. Throws ConfigError [RT-G10] for one that rtrain sets.
    [[nodiscard]] static Parameters parameters(const Config& config, const Team& team) {
        Parameters parameters{{"nthread", std::to_string(team.threads)}, {"device", team.device}};
        for (const auto& parameter : config) {
            const std::string key = parameter.key();
            if (key == "nthread" || key == "n_jobs") {
                throw reserved_parameter(key, "set ScalingConfig::threads_per_worker instead");
            }
            if (key == "device" || key == "gpu_id") {
                throw reserved_parameter(key, "set ScalingConfig::use_gpu instead");
            }
            const auto* const array = parameter.value().if_array();
            if (array == nullptr) {
                parameters.emplace_back(key, text_of_value(parameter.value()));
            } else if (key == "eval_metric") { // each counts
                for (const auto& metric : *array) {
                    parameters.emplace_back(key, text_of_value(metric));
                }
            } else if (!array->empty() && array->front().is_array()) {
                parameters.emplace_back(key, boost::json::serialize(*array));
            } else {
                parameters.emplace_back(key, "(" + text_of_array(*array) + ")");
            }
        }
        return parameters;
    }
    /// Throws ConfigError [RT-G6].
    static void check(const Parameters& parameters) { require_known(parameters); }
    /// Number of classes that labels have; 0: they are any numbers.
    [[nodiscard]] static std::int64_t classes(const Parameters& parameters) {
        const std::string classes = value_of(parameters, "num_class");
        const bool is_multi = value_of(parameters, "objective").starts_with("multi:");
        return is_multi && !classes.empty() ? std::stoll(classes) : 0;
    }
};

} // namespace rtrain::gbdt::xgboost
