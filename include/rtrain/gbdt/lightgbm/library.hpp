// SPDX-License-Identifier: Apache-2.0
/// @file
/// LightGBM for the classes of gbdt/: its parameters, its tables, its booster.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/gbdt/booster.hpp>
#include <rtrain/gbdt/lightgbm/model.hpp>
#include <rtrain/gbdt/lightgbm/network.hpp>
#include <rtrain/gbdt/lightgbm/table.hpp>
#include <rtrain/gbdt/names.hpp>
#include <rtrain/gbdt/parameters.hpp>
#include <rtrain/gbdt/prediction.hpp>
#include <rtrain/gbdt/row_block.hpp>
#include <rtrain/gbdt/team.hpp>
#include <rtrain/gbdt/training_table.hpp>
#include <rtrain/storage/file/file.hpp>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::gbdt::lightgbm {

/// rtrain's collectives, as LightGBM calls them.
class TeamCollectives final : public Collectives {
public:
    explicit TeamCollectives(const Team& team) : team_(team) {}
    [[nodiscard]] int rank() const override { return team_.rank; }
    [[nodiscard]] int size() const override { return team_.size; }
    void all_gather(std::byte* data, const comm::Parts& parts) override {
        team_.ranks->parts().all_gather(data, parts);
    }
    void reduce_scatter(const std::byte* data, const comm::Parts& parts, std::byte* own,
                        const comm::Combining& combining) override {
        team_.ranks->parts().reduce_scatter(data, parts, own, combining);
    }

private:
    Team team_;
};

/// Rows whose margins are the predictions of an earlier model, from which training continues.
class ContinuedRows final : public RowSource<double> {
public:
    /// `rows` and `earlier` outlive it.
    ContinuedRows(RowSource<double>& rows, const Model& earlier) : rows_(rows), earlier_(earlier) {}

    [[nodiscard]] const Features& features() const override { return rows_.features(); }
    [[nodiscard]] std::int64_t rows() override { return rows_.rows(); }
    void rewind() override { rows_.rewind(); }
    [[nodiscard]] RowBlock<double> next() override {
        RowBlock<double> block = rows_.next();
        if (block.rows > 0) {
            scores_ = earlier_.predict(block.values, block.rows, Predict::raw_score);
            FieldValues& margin = block.fields[static_cast<std::size_t>(Field::base_margin)];
            for (std::size_t i = 0; margin.data != nullptr && i < scores_.size(); ++i) {
                scores_[i] += margin.data[i];
            }
            margin = {scores_.data(), static_cast<std::int64_t>(scores_.size()) / block.rows};
        }
        return block;
    }

private:
    RowSource<double>& rows_;
    const Model& earlier_;
    std::vector<double> scores_;
};

/// The connections of a team's ranks; none for one rank.
class Link {
public:
    explicit Link(const Team& team) : collectives_(team) {
        begin();
        if (team.size > 1) {
            network_.emplace(collectives_);
        }
    }

private:
    TeamCollectives collectives_;
    std::optional<Network> network_;
};

/// LightGBM for the classes of gbdt/.
struct Engine {
    using Value = double; ///< of features
    using Link = lightgbm::Link;
    using Matrix = lightgbm::Table;
    using Model = lightgbm::Model;

    /// Returns the parameters as text, by their own names. Throws ConfigError [RT-G6, RT-G10].
    [[nodiscard]] static Parameters parameters(const Config& config, const Team& team) {
        const auto names = parameter_names();
        std::map<std::string, std::string> set{
            {"num_threads", std::to_string(team.threads)},
            {"verbosity", "0"},
            {"device_type", team.device == "cpu" ? "cpu" : "cuda"},
            {"deterministic", "true"}};
        for (const auto& parameter : config) {
            const std::string name = own_name(parameter.key(), names);
            const auto* const array = parameter.value().if_array();
            const std::string value =
                array != nullptr ? text_of_array(*array) : text_of_value(parameter.value());
            check_reserved(parameter.key(), name, value, team);
            set[name] = value;
        }
        if (!set.contains("force_col_wise") && !set.contains("force_row_wise")) {
            set["force_col_wise"] = "true"; // else chosen by times, which differ between ranks
        }
        if (team.size > 1) {
            set["num_machines"] = std::to_string(team.size);
            set["pre_partition"] = "true";
            set.try_emplace("tree_learner", "data");
        }
        return {set.begin(), set.end()};
    }
    /// The names were checked above; LightGBM refuses values when it trains.
    static void check(const Parameters& /*parameters*/) {}
    /// Number of classes that labels have; 0: they are any numbers.
    [[nodiscard]] static std::int64_t classes(const Parameters& parameters) {
        const std::string classes = value_of(parameters, "num_class");
        return classes.empty() ? 0 : std::stoll(classes);
    }

    /// Throws ModelError [RT-G11]. `name`: for messages.
    [[nodiscard]] static std::shared_ptr<Model> loaded(const std::string& content,
                                                       const std::string& name) {
        return std::make_shared<Model>(content, name);
    }
    [[nodiscard]] static std::unique_ptr<Matrix>
    matrix(RowSource<Value>& rows, const Parameters& parameters, const Team& /*team*/,
           const Matrix* reference, const Model* earlier) {
        const std::string text = joined(with_categories(parameters, rows.features()));
        if (earlier == nullptr) {
            return std::make_unique<Matrix>(rows, text, reference);
        }
        ContinuedRows continued(rows, *earlier);
        return std::make_unique<Matrix>(continued, text, reference);
    }
    [[nodiscard]] static std::shared_ptr<Model> create(const Parameters& parameters,
                                                       const TrainingTable<Engine>& train,
                                                       const EvaluatedTables<Engine>& evals) {
        auto model = std::make_shared<Model>(train.matrix(),
                                             joined(with_categories(parameters, train.features())));
        if (train.earlier() != nullptr) {
            model->continue_from(*train.earlier());
        }
        for (const auto& [name, table] : evals) {
            if (!table.shares_rows(train)) {
                model->add(table.matrix());
            }
        }
        return model;
    }
    /// Returns false if no leaf could be split.
    static bool update(Model& model, int /*round*/, const TrainingTable<Engine>& /*train*/) {
        return model.update();
    }
    [[nodiscard]] static Metrics evaluate(Model& model, int /*round*/,
                                          const TrainingTable<Engine>& train,
                                          const EvaluatedTables<Engine>& evals) {
        Metrics all;
        int added = 0;
        for (const auto& [name, table] : evals) {
            Metrics metrics = model.evaluate(table.shares_rows(train) ? 0 : ++added, name);
            average(train.team(), table.rows(), metrics);
            all.insert(all.end(), metrics.begin(), metrics.end());
        }
        return all;
    }

private:
    [[nodiscard]] static std::string
    own_name(const std::string& key,
             const std::vector<std::pair<std::string, std::string>>& names) {
        const auto known =
            std::ranges::find_if(names, [&](const auto& name) { return name.first == key; });
        if (known != names.end()) {
            return known->second;
        }
        std::vector<std::string> all;
        for (const auto& [name, own] : names) {
            all.push_back(name);
        }
        throw unknown_parameter("LightGBM", key, all);
    }
    static void check_reserved(const std::string& key, const std::string& name,
                               const std::string& value, const Team& team) {
        for (const auto& [reserved, advice] :
             {std::pair("num_threads", "set ScalingConfig::threads_per_worker instead"),
              std::pair("machines", "ranks communicate through rtrain"),
              std::pair("machine_list_filename", "ranks communicate through rtrain"),
              std::pair("local_listen_port", "ranks communicate through rtrain"),
              std::pair("num_machines", "set ScalingConfig::num_workers instead"),
              std::pair("device_type", "set ScalingConfig::use_gpu instead"),
              std::pair("num_iterations", "set num_boost_round instead"),
              std::pair("categorical_feature", "set categorical_columns instead"),
              std::pair("early_stopping_round", "set early_stopping_rounds instead")}) {
            if (name == reserved) {
                throw reserved_parameter(key, advice);
            }
        }
        if (name == "tree_learner" && team.size > 1 &&
            (value == "serial" || value.starts_with("feature"))) {
            throw reserved_parameter(
                key, detail::concat("use \"data\" or \"voting\" on several ranks: ",
                                    value == "serial" ? "serial trains a model on each of them"
                                                      : "LightGBM's C interface refuses feature"));
        }
    }

    [[nodiscard]] static Parameters with_categories(Parameters parameters,
                                                    const Features& features) {
        std::string columns;
        for (std::size_t i = 0; i < features.size(); ++i) {
            if (features.categorical[i]) {
                columns += (columns.empty() ? "" : ",") + std::to_string(i);
            }
        }
        if (!columns.empty()) {
            parameters.emplace_back("categorical_feature", columns);
        }
        return parameters;
    }
};

/// A model of LightGBM, in training or loaded.
class Booster : public BoosterBase<Booster, Engine> {
public:
    static constexpr at::ScalarType scalar_type = at::kDouble; ///< of features and predictions

    using BoosterBase::BoosterBase;
    /// Throws ModelError [RT-G11]. `name`: for messages.
    explicit Booster(const std::string& content, const std::string& name = "the model")
        : BoosterBase(Engine::loaded(content, name)) {}
    /// Saves a model file, which Python's lightgbm loads, too.
    void save(const std::filesystem::path& file) const {
        storage::replace_file(file, model().saved());
    }

    using BoosterBase::predict;
    /// The same for features of shape (rows, features).
    [[nodiscard]] at::Tensor predict(const at::Tensor& features,
                                     const PredictOptions& options = {}) const {
        const at::Tensor values = features.to(scalar_type).contiguous();
        const std::vector<double> made =
            model().predict(values.const_data_ptr<double>(), values.size(0),
                            options.margin ? Predict::raw_score : Predict::normal, options.rounds,
                            at::get_num_threads());
        const at::Tensor rows =
            at::tensor(made, scalar_type).view({values.size(0), -1}); // rows of outputs
        return rows.size(1) == 1 ? rows.squeeze(1) : rows;
    }

    /// Importance of each feature: "split" or "gain".
    [[nodiscard]] std::vector<std::pair<std::string, double>>
    feature_importance(const std::string& type = "split") const {
        return model().importance(type);
    }
};

/// LightGBM for gbdt/training.hpp.
struct Library : Engine {
    using Booster = lightgbm::Booster;
    static constexpr const char* name = "LightGBM";
    static constexpr const char* filename = "model.txt";
};

} // namespace rtrain::gbdt::lightgbm
