// SPDX-License-Identifier: Apache-2.0
/// @file
/// LightGBM as a library of gbdt/training.hpp: its parameters, its learner, its booster.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/gbdt/booster.hpp>
#include <rtrain/gbdt/learner.hpp>
#include <rtrain/gbdt/lightgbm/model.hpp>
#include <rtrain/gbdt/lightgbm/network.hpp>
#include <rtrain/gbdt/lightgbm/table.hpp>
#include <rtrain/gbdt/names.hpp>
#include <rtrain/gbdt/parameters.hpp>
#include <rtrain/gbdt/prediction.hpp>
#include <rtrain/gbdt/team.hpp>
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

/// A model of LightGBM, trained or loaded.
class Booster : public BoosterBase<Booster, Model> {
public:
    static constexpr at::ScalarType scalar_type = at::kDouble; ///< of features and predictions

    /// Throws ModelError [RT-G11]. `name`: for messages.
    explicit Booster(const std::string& content, const std::string& name = "the model")
        : BoosterBase(std::make_shared<Model>(content, name)) {}
    /// Saves a model file, which Python's lightgbm loads, too.
    void save(const std::filesystem::path& file) const {
        storage::replace_file(file, model_->saved());
    }

    using BoosterBase::predict;
    /// The same for features of shape (rows, features).
    [[nodiscard]] at::Tensor predict(const at::Tensor& features,
                                     const PredictOptions& options = {}) const {
        const at::Tensor values = features.to(scalar_type).contiguous();
        const std::vector<double> made =
            model_->predict(values.const_data_ptr<double>(), values.size(0),
                            options.margin ? Predict::raw_score : Predict::normal, options.rounds,
                            at::get_num_threads());
        const at::Tensor rows =
            at::tensor(made, scalar_type).view({values.size(0), -1}); // rows of outputs
        return rows.size(1) == 1 ? rows.squeeze(1) : rows;
    }

    /// Importance of each feature: "split" or "gain".
    [[nodiscard]] std::vector<std::pair<std::string, double>>
    feature_importance(const std::string& type = "split") const {
        return model_->importance(type);
    }
};

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
    /// `earlier` outlives it.
    ContinuedRows(std::unique_ptr<RowSource<double>> rows, const Model& earlier)
        : rows_(std::move(rows)), earlier_(earlier) {}

    [[nodiscard]] const Features& features() const override { return rows_->features(); }
    [[nodiscard]] std::int64_t rows() override { return rows_->rows(); }
    void rewind() override { rows_->rewind(); }
    [[nodiscard]] RowBlock<double> next() override {
        RowBlock<double> block = rows_->next();
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
    std::unique_ptr<RowSource<double>> rows_;
    const Model& earlier_;
    std::vector<double> scores_;
};

/// LightGBM in a training.
class TrainingModel final : public Learner {
public:
    explicit TrainingModel(LearnerInput<double> input) : team_(input.team), collectives_(team_) {
        begin();
        if (team_.size > 1) {
            network_.emplace(collectives_);
        }
        if (!input.resumed.empty()) {
            earlier_.emplace(input.resumed, "the checkpoint's model");
        }
        const std::string parameters =
            joined(with_categories(input.parameters, input.tables.front().second->features()));
        for (auto& [name, rows] : input.tables) {
            row_counts_.push_back(rows->rows());
            if (earlier_) {
                rows = std::make_unique<ContinuedRows>(std::move(rows), *earlier_);
            }
            tables_.push_back(std::make_unique<Table>(
                *rows, parameters, tables_.empty() ? nullptr : tables_.front().get()));
        }
        model_.emplace(*tables_.front(), parameters);
        if (earlier_) {
            model_->continue_from(*earlier_);
        }
        int added = 0;
        for (const std::size_t i : input.evaluated) {
            if (i > 0) {
                model_->add(*tables_[i]);
            }
            evaluated_.push_back({input.tables[i].first, i, i == 0 ? 0 : ++added});
        }
    }

    void update(int /*round*/) override { (void)model_->update(); }
    [[nodiscard]] Metrics evaluate(int /*round*/) override {
        Metrics all;
        for (const Evaluated& table : evaluated_) {
            Metrics metrics = model_->evaluate(table.number, table.name);
            average(team_, row_counts_[table.index], metrics);
            all.insert(all.end(), metrics.begin(), metrics.end());
        }
        return all;
    }
    [[nodiscard]] std::string saved() const override { return model_->saved(); }

private:
    struct Evaluated {
        std::string name;
        std::size_t index;
        int number; ///< in LightGBM
    };

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

    Team team_;
    TeamCollectives collectives_;
    std::optional<Network> network_; ///< outlives those below
    std::optional<Model> earlier_;
    std::vector<std::int64_t> row_counts_;
    std::vector<std::unique_ptr<Table>> tables_;
    std::vector<Evaluated> evaluated_;
    std::optional<Model> model_;
};

/// LightGBM for gbdt/training.hpp.
struct Library {
    using Booster = lightgbm::Booster;
    using Value = double; ///< of features
    using Learner = TrainingModel;
    static constexpr const char* name = "LightGBM";
    static constexpr const char* filename = "model.txt";

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
};

} // namespace rtrain::gbdt::lightgbm
