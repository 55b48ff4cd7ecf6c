// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the boosters of all libraries have in common.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/config/run_info.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/gbdt/prediction.hpp>
#include <rtrain/gbdt/row_block.hpp>
#include <rtrain/gbdt/training_table.hpp>
#include <rtrain/storage/file/file.hpp>

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::gbdt {

/// A model of one library, in training or loaded. Copies share it. `Own` derives from it, predicts
/// from features of its `scalar_type`, and is constructed from the content of a model file and a
/// name for messages.
template <class Own, class Engine>
class BoosterBase {
public:
    using Table = TrainingTable<Engine>;

    /// A model that update() trains, without trees, or with those of the table's `init_model`.
    /// `evals` are evaluated by eval(). *Collective.* Throws ConfigError [RT-G6, RT-G10],
    /// ModelError [RT-G12].
    BoosterBase(const Config& params, Table train, EvaluatedTables<Engine> evals = {}) {
        const Parameters parameters = Engine::parameters(params, train.team());
        Engine::check(parameters);
        model_ = Engine::create(parameters, train, evals);
        const int rounds = train.earlier() != nullptr ? train.earlier()->rounds() : 0;
        training_ =
            std::make_shared<Training>(Training{std::move(train), std::move(evals), rounds});
    }

    /// Adds the trees of a round. *Collective.* Throws ConfigError [RT-G68], ModelError [RT-G12],
    /// PeerError [RT-G17].
    void update() {
        Training& now = training();
        now.rounds += Engine::update(*model_, now.rounds, now.train) ? 1 : 0;
    }
    /// Returns the metrics of `evals` after the last round, such as "valid-logloss"; the same on
    /// all ranks. *Collective.* Throws like update().
    [[nodiscard]] Metrics eval() const {
        const Training& now = training();
        return Engine::evaluate(*model_, now.rounds - 1, now.train, now.evals);
    }

    /// Loads a model file, in any of the library's formats. Throws ModelError [RT-G11].
    [[nodiscard]] static Own load(const std::filesystem::path& file) {
        return Own(storage::read_file(file), file.string());
    }

    /// Returns predictions of Own::scalar_type: of shape (rows), or (rows, outputs). Throws
    /// DataError [RT-G5].
    [[nodiscard]] at::Tensor predict(const data::Batch& batch,
                                     const PredictOptions& options = {}) const {
        return own().predict(features_from(batch, feature_names(), Own::scalar_type), options);
    }
    [[nodiscard]] at::Tensor predict(const data::Dataset& rows,
                                     const PredictOptions& options = {}) const {
        return predict_all(rows, [&](const data::Batch& batch) { return predict(batch, options); });
    }

    [[nodiscard]] std::vector<std::string> feature_names() const { return model_->feature_names(); }
    [[nodiscard]] int rounds() const { return training_ ? training_->rounds : model_->rounds(); }
    /// The content of a model file.
    [[nodiscard]] std::string content() const { return model_->saved(); }

protected:
    using Model = typename Engine::Model;
    explicit BoosterBase(std::shared_ptr<Model> model) : model_(std::move(model)) {}

    [[nodiscard]] const Model& model() const noexcept { return *model_; }

private:
    struct Training {
        Table train;
        EvaluatedTables<Engine> evals;
        int rounds; ///< so far
    };

    [[nodiscard]] Training& training() const {
        if (!training_) {
            throw ConfigError("RT-G68",
                              "this booster was loaded, so it predicts only; to train it further, "
                              "pass its content() to the table, and that to a new booster");
        }
        return *training_;
    }
    [[nodiscard]] const Own& own() const noexcept { return static_cast<const Own&>(*this); }

    std::shared_ptr<Training> training_; ///< null for a loaded model; outlives it
    std::shared_ptr<Model> model_;
};

} // namespace rtrain::gbdt
