// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrainingTable: `xgboost::DMatrix` and `lightgbm::Dataset`.
#pragma once

#include <rtrain/config/run_info.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/shard.hpp>
#include <rtrain/gbdt/connection.hpp>
#include <rtrain/gbdt/names.hpp>
#include <rtrain/gbdt/options.hpp>
#include <rtrain/gbdt/row_block.hpp>
#include <rtrain/gbdt/table_reader.hpp>
#include <rtrain/gbdt/team.hpp>

#include <c10/core/GradMode.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::gbdt {

/// This rank's rows of a data set, as a library trains on them: its own copy, of one byte per value
/// with the default `max_bin`. Copies of this object share the rows.
template <class Engine>
class TrainingTable {
public:
    using Matrix = typename Engine::Matrix;
    using Model = typename Engine::Model;

    /// Reads the training data. `params`: those that determine bins, such as max_bin; best all
    /// that the booster gets. `init_model`: the content of a model file, whose training continues.
    /// *Collective.* Throws ConfigError [RT-G6, RT-G10], DataError [RT-G2, RT-G3, RT-G4, RT-G7,
    /// RT-G9], ModelError [RT-G11, RT-G12].
    TrainingTable(const Connection<Engine>& connection, const data::Shard& shard,
                  const TableColumns& columns, const Config& params = {},
                  const std::string& init_model = {})
        : TrainingTable(shard,
                        {&connection, columns, Engine::parameters(params, connection.team()),
                         init_model.empty() ? nullptr : Engine::loaded(init_model, "init_model")},
                        nullptr) {}

    /// Reads other data with the columns, parameters and bins of this table, to evaluate it.
    /// `name`: for messages. *Collective.* Throws DataError [RT-G2, RT-G3, RT-G4, RT-G5, RT-G7,
    /// RT-G9], ModelError [RT-G12].
    [[nodiscard]] TrainingTable create_valid(const data::Shard& shard,
                                             const std::string& name = "this table") const {
        require_equal_features(features(),
                               features_of(shard.dataset(), state_->setup.columns).features, name);
        return {shard, state_->setup, this};
    }

    /// The number of this rank's rows.
    [[nodiscard]] std::int64_t rows() const noexcept { return state_->rows; }
    [[nodiscard]] const Features& features() const noexcept { return state_->features; }

    /// The library's object.
    [[nodiscard]] const Matrix& matrix() const noexcept { return *state_->matrix; }
    [[nodiscard]] const Team& team() const noexcept { return state_->setup.connection->team(); }
    /// The model whose training continues; null for none.
    [[nodiscard]] const Model* earlier() const noexcept { return state_->setup.earlier.get(); }
    /// True for copies of one object.
    [[nodiscard]] bool shares_rows(const TrainingTable& other) const noexcept {
        return state_ == other.state_;
    }

private:
    struct Setup {
        const Connection<Engine>* connection;
        TableColumns columns;
        Parameters parameters;
        std::shared_ptr<const Model> earlier;
    };
    struct State {
        Setup setup;
        Features features;
        std::int64_t rows;
        std::unique_ptr<const Matrix> matrix;
    };

    TrainingTable(const data::Shard& shard, const Setup& setup, const TrainingTable* trained) {
        using Reader = TableReader<typename Engine::Value>;
        const c10::NoGradGuard no_grad; // torch computes no gradients here
        const Team& team = setup.connection->team();
        Reader rows(shard.dataset(), setup.columns, {.number = team.rank, .of = team.size},
                    Engine::classes(setup.parameters));
        if (team.size > 1) {
            rows.check(); // within the library, an error would leave other ranks waiting
            team.ranks->barrier();
        }
        auto matrix =
            Engine::matrix(rows, setup.parameters, team,
                           trained != nullptr ? &trained->matrix() : nullptr, setup.earlier.get());
        state_ = std::make_shared<const State>(
            State{setup, rows.features(), rows.rows(), std::move(matrix)});
    }

    std::shared_ptr<const State> state_;
};

/// Tables that a booster evaluates, and the names of their metrics.
template <class Engine>
using EvaluatedTables = std::vector<std::pair<std::string, TrainingTable<Engine>>>;

} // namespace rtrain::gbdt
