// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the boosters of all libraries have in common.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/gbdt/prediction.hpp>
#include <rtrain/storage/file/file.hpp>

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::gbdt {

/// A trained or loaded `Model` of one library. `Own` derives from it, predicts from features of its
/// `scalar_type`, and is constructed from the content of a model file and a name for messages.
template <class Own, class Model>
class BoosterBase {
public:
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
    [[nodiscard]] int rounds() const { return model_->rounds(); }
    /// The content of a model file.
    [[nodiscard]] std::string content() const { return model_->saved(); }

protected:
    explicit BoosterBase(std::shared_ptr<Model> model) : model_(std::move(model)) {}

    std::shared_ptr<Model> model_;

private:
    [[nodiscard]] const Own& own() const noexcept { return static_cast<const Own&>(*this); }
};

} // namespace rtrain::gbdt
