// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ema and Swa: averages of a model's weights over steps or epochs, as in torch.optim.swa_utils.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/fit/step.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

namespace rtrain {

/// Averages of a model's parameters. In a State, they resume.
class AveragedWeights {
public:
    /// Averages the model's current weights in: average + weight_of_new * (current - average). The
    /// first call copies them.
    void update(const torch::nn::Module& model, double weight_of_new);
    /// Exchanges the model's weights and the averages, if there are any.
    void swap(const torch::nn::Module& model);

    /// While it lives, the model has the averages; then its own weights again.
    class Applied {
    public:
        Applied(AveragedWeights& weights, const torch::nn::Module& model)
            : weights_(weights), model_(model) {
            weights_.swap(model_);
        }
        Applied(const Applied&) = delete;
        Applied& operator=(const Applied&) = delete;
        ~Applied() { weights_.swap(model_); }

    private:
        AveragedWeights& weights_;
        const torch::nn::Module& model_;
    };

    /// The averages, in the order of the model's parameters.
    [[nodiscard]] const std::vector<at::Tensor>& averages() const noexcept { return averages_; }
    /// The number of weights that were averaged.
    [[nodiscard]] std::int64_t count() const noexcept { return count_; }

    /// For State::add().
    void save(StateWriter& out) const;
    void load(const StateReader& in);

private:
    std::vector<at::Tensor> averages_;
    std::int64_t count_ = 0;
};

/// Options of Ema.
struct EmaOptions {
    double decay = 0.999; ///< weight of the previous average; at least 0, below 1
};

/// Exponential moving average of weights after each step. A callback of Fit, which validates with
/// the averages; or in a custom loop:
///
/// @code
/// rtrain::Ema ema({.decay = 0.99});
/// auto state = rtrain::State{}.add("model", model).add("ema", ema);
/// optimizer.step();
/// ema.update(*model);
/// auto averaged = ema.applied(*model);
/// @endcode
class Ema {
public:
    /// Throws ConfigError [RT-F10] for a decay out of range.
    explicit Ema(const EmaOptions& options = {});

    /// Averages the model's weights in.
    void update(const torch::nn::Module& model) { weights_.update(model, 1 - options_.decay); }
    /// Gives the model the averages, while the result lives.
    [[nodiscard]] AveragedWeights::Applied applied(const torch::nn::Module& model) {
        return {weights_, model};
    }
    /// The averages.
    [[nodiscard]] const AveragedWeights& weights() const noexcept { return weights_; }
    void save(StateWriter& out) const { weights_.save(out); } ///< for State::add()
    void load(const StateReader& in) { weights_.load(in); }   ///< for State::add()

    static constexpr bool writes_weights = true; ///< not for sharded models (RT-F19)
    /// Called by Fit.
    void on_train_batch_end(torch::nn::Module& module, const data::Batch& batch, Step& step);
    void on_validation_start(torch::nn::Module& module, Step& step); ///< called by Fit
    void on_validation_end(torch::nn::Module& module, Step& step);   ///< called by Fit
    void on_test_start(torch::nn::Module& module, Step& step);       ///< called by Fit
    void on_predict_start(torch::nn::Module& module, Step& step);    ///< called by Fit

private:
    EmaOptions options_;
    AveragedWeights weights_;
};

/// Options of Swa.
struct SwaOptions {
    int from_epoch = 0; ///< the first epoch whose weights are averaged
};

/// Stochastic weight averaging: the mean of the weights after epochs. Used like Ema; in a custom
/// loop, call update() after each epoch. Statistics of batch norms do not fit averaged weights:
/// call update_batch_norm().
class Swa {
public:
    /// Throws ConfigError [RT-F10] for a negative epoch.
    explicit Swa(const SwaOptions& options = {});

    /// Averages the model's weights in.
    void update(const torch::nn::Module& model) {
        weights_.update(model, 1 / static_cast<double>(weights_.count() + 1));
    }
    /// Gives the model the averages, while the result lives.
    [[nodiscard]] AveragedWeights::Applied applied(const torch::nn::Module& model) {
        return {weights_, model};
    }
    /// The averages.
    [[nodiscard]] const AveragedWeights& weights() const noexcept { return weights_; }
    void save(StateWriter& out) const { weights_.save(out); } ///< for State::add()
    void load(const StateReader& in) { weights_.load(in); }   ///< for State::add()

    static constexpr bool writes_weights = true; ///< not for sharded models (RT-F19)
    /// Called by Fit.
    void on_train_epoch_end(torch::nn::Module& module, Step& step);
    void on_test_start(torch::nn::Module& module, Step& step);    ///< called by Fit
    void on_predict_start(torch::nn::Module& module, Step& step); ///< called by Fit

private:
    SwaOptions options_;
    AveragedWeights weights_;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/fit/callbacks/averaged_weights_definitions.hpp>
#endif
