// SPDX-License-Identifier: Apache-2.0
/// @file
/// XGBoost for the classes of gbdt/: its parameters, its tables, its booster.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/gbdt/booster.hpp>
#include <rtrain/gbdt/names.hpp>
#include <rtrain/gbdt/parameters.hpp>
#include <rtrain/gbdt/prediction.hpp>
#include <rtrain/gbdt/row_block.hpp>
#include <rtrain/gbdt/team.hpp>
#include <rtrain/gbdt/training_table.hpp>
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

/// The connections of a team's ranks; none for one rank.
class Link {
public:
    explicit Link(const Team& team) {
        begin();
        if (team.size > 1) {
            ranks_.emplace(team.rank, team.size, address(team),
                           [&](const std::string& text) { return broadcast(team, text); });
        }
    }

private:
    [[nodiscard]] static std::string address(const Team& team) {
        if (team.on_one_node) {
            return "127.0.0.1";
        }
        boost::asio::io_context io;
        return launch::own_address(io, {}).to_string();
    }

    std::optional<TrackedRanks> ranks_;
};

/// XGBoost for the classes of gbdt/.
struct Engine {
    using Value = float; ///< of features
    using Link = xgboost::Link;
    using Matrix = xgboost::Matrix;
    using Model = xgboost::Model;

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

    /// Throws ModelError [RT-G11]. `name`: for messages.
    [[nodiscard]] static std::shared_ptr<Model> loaded(const std::string& content,
                                                       const std::string& name) {
        auto model = std::make_shared<Model>();
        model->load(content, name);
        model->set({{"nthread", std::to_string(at::get_num_threads())}}); // of predictions
        return model;
    }
    [[nodiscard]] static std::unique_ptr<Matrix> matrix(RowSource<Value>& rows,
                                                        const Parameters& parameters,
                                                        const Team& team, const Matrix* reference,
                                                        const Model* /*earlier*/) {
        const std::string bins = value_of(parameters, "max_bin");
        const std::string method = value_of(parameters, "tree_method");
        const MatrixOptions options{.max_bin = bins.empty() ? 256 : std::stoi(bins),
                                    .threads = team.threads,
                                    .keeps_values = method == "exact" || method == "approx" ||
                                                    value_of(parameters, "booster") == "gblinear"};
        return std::make_unique<Matrix>(rows, options, reference);
    }
    [[nodiscard]] static std::shared_ptr<Model> create(const Parameters& parameters,
                                                       const TrainingTable<Engine>& train,
                                                       const EvaluatedTables<Engine>& evals) {
        std::vector<DMatrixHandle> all{train.matrix().get()};
        for (const auto& [name, table] : evals) {
            if (!table.shares_rows(train)) {
                all.push_back(table.matrix().get());
            }
        }
        auto model = std::make_shared<Model>(all);
        if (train.earlier() != nullptr) {
            model->load(train.earlier()->saved(), "init_model");
        }
        model->set(parameters);
        model->set_features(train.features());
        return model;
    }
    /// Returns true: a tree may be a single leaf.
    static bool update(Model& model, int round, const TrainingTable<Engine>& train) {
        model.update(round, train.matrix());
        return true;
    }
    [[nodiscard]] static Metrics evaluate(Model& model, int round,
                                          const TrainingTable<Engine>& /*train*/,
                                          const EvaluatedTables<Engine>& evals) {
        std::vector<std::pair<std::string, const Matrix*>> tables;
        for (const auto& [name, table] : evals) {
            tables.emplace_back(name, &table.matrix());
        }
        return tables.empty() ? Metrics() : model.evaluate(round, tables);
    }
};

/// A model of XGBoost, in training or loaded.
class Booster : public BoosterBase<Booster, Engine> {
public:
    static constexpr at::ScalarType scalar_type = at::kFloat; ///< of features and predictions

    using BoosterBase::BoosterBase;
    /// Throws ModelError [RT-G11]. `name`: for messages.
    explicit Booster(const std::string& content, const std::string& name = "the model")
        : BoosterBase(Engine::loaded(content, name)) {}
    /// Saves a model file, which Python's xgboost loads, too.
    void save(const std::filesystem::path& file) const {
        storage::replace_file(file, model().saved(file.extension() == ".json" ? "json" : "ubj"));
    }

    using BoosterBase::predict;
    /// The same for features of shape (rows, features).
    [[nodiscard]] at::Tensor predict(const at::Tensor& features,
                                     const PredictOptions& options = {}) const {
        const at::Tensor values = features.to(scalar_type).contiguous();
        const Predictions made = model().predict(values.const_data_ptr<float>(), values.size(0),
                                                 options.margin, options.rounds);
        const at::Tensor rows = at::empty({made.rows, made.columns}, scalar_type);
        std::copy_n(made.values, made.rows * made.columns, rows.mutable_data_ptr<float>());
        return made.columns == 1 ? rows.squeeze(1) : rows;
    }

    /// Importance of the features that the model uses: "weight", "gain", "cover" and others.
    [[nodiscard]] std::vector<std::pair<std::string, double>>
    feature_importance(const std::string& type = "weight") const {
        return model().importance(type);
    }
};

/// XGBoost for gbdt/training.hpp.
struct Library : Engine {
    using Booster = xgboost::Booster;
    static constexpr const char* name = "XGBoost";
    static constexpr const char* filename = "model.ubj";
};

} // namespace rtrain::gbdt::xgboost
