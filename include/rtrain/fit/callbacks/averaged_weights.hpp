// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ema and Swa: averages of a model's weights over steps or epochs, as in torch.optim.swa_utils.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/fit/step.hpp>
#include <rtrain/model/weight_parts.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain {

/// Averages of a model's parameters: the base of Ema and Swa. In a State, they resume. Each rank of
/// a sharded model has the averages of its parts, and checkpoints are the same as without sharding.
class AveragedWeights {
public:
    /// While it lives, the model has the averages; then its own weights again.
    class Applied {
    public:
        explicit Applied(AveragedWeights& weights) : weights_(weights) {
            weights_.require_own_weights("applied()");
            weights_.swap();
        }
        Applied(const Applied&) = delete;
        Applied& operator=(const Applied&) = delete;
        /// Throws, unless an exception is in flight: like applied().
        ~Applied() noexcept(false);

    private:
        AveragedWeights& weights_;
        int exceptions_ = std::uncaught_exceptions();
    };
    /// Gives the model the averages, while the result lives; nothing before the first update.
    /// *Collective* for a sharded model. Throws ConfigError [RT-F61] without a model, [RT-F82] if
    /// the model has the averages.
    [[nodiscard]] Applied applied() { return Applied(*this); }

    /// The averages, in the order of the model's parameters; of a sharded model this rank's parts.
    [[nodiscard]] const std::vector<at::Tensor>& averages() const noexcept { return averages_; }
    /// The number of weights that were averaged.
    [[nodiscard]] std::int64_t count() const noexcept { return count_; }

    /// For State::add(). Throws ConfigError [RT-F82] while the model has the averages.
    void save(StateWriter& out) const;
    /// Likewise. Throws CheckpointError [RT-K3] for averages of a different model.
    void load(const StateReader& in);

    /// Called by Fit, before load().
    void bind(detail::WeightParts model) { model_ = std::move(model); }

protected:
    AveragedWeights() = default;
    explicit AveragedWeights(detail::WeightParts model) : model_(std::move(model)) {}

    /// Averages the current weights in: average + weight_of_new * (current - average). The first
    /// call copies them. Throws ConfigError [RT-F82] while the model has the averages.
    void average(double weight_of_new);
    /// Exchanges the model's weights and the averages, if there are any.
    void swap();

private:
    [[nodiscard]] const detail::WeightParts& model() const;
    void require_own_weights(const char* call) const;

    std::optional<detail::WeightParts> model_;
    std::vector<at::Tensor> averages_;
    std::int64_t count_ = 0;
    bool is_applied_ = false; ///< the model has the averages, and averages_ its own weights
};

/// Options of Ema.
struct EmaOptions {
    double decay = 0.999; ///< weight of the previous average; at least 0, below 1
};

/// Exponential moving average of weights after each step. A callback of Fit, which validates with
/// the averages; or in a custom loop:
///
/// @code
/// rtrain::Ema ema(model, {.decay = 0.99});
/// auto state = rtrain::State{}.add("model", model).add("ema", ema);
/// optimizer.step();
/// ema.update();
/// auto averaged = ema.applied();
/// @endcode
class Ema : public AveragedWeights {
public:
    /// For Fit. Throws ConfigError [RT-F10] for a decay out of range.
    explicit Ema(const EmaOptions& options = {});
    /// For a module, or what worker.prepare() returned. Also throws RT-F19.
    explicit Ema(detail::WeightParts model, const EmaOptions& options = {});

    /// Averages the model's weights in.
    void update() { average(1 - options_.decay); }

    /// Called by Fit.
    void on_train_batch_end(torch::nn::Module& module, const data::Batch& batch, Step& step);
    void on_validation_start(torch::nn::Module& module, Step& step); ///< called by Fit
    void on_validation_end(torch::nn::Module& module, Step& step);   ///< called by Fit
    void on_test_start(torch::nn::Module& module, Step& step);       ///< called by Fit
    void on_predict_start(torch::nn::Module& module, Step& step);    ///< called by Fit

private:
    EmaOptions options_;
};

/// Options of Swa.
struct SwaOptions {
    int from_epoch = 0; ///< the first epoch whose weights are averaged
};

/// Stochastic weight averaging: the mean of the weights after epochs. Used like Ema; in a custom
/// loop, call update() after each epoch. Statistics of batch norms do not fit averaged weights:
/// call update_batch_norm().
class Swa : public AveragedWeights {
public:
    /// For Fit. Throws ConfigError [RT-F10] for a negative epoch.
    explicit Swa(const SwaOptions& options = {});
    /// For a module, or what worker.prepare() returned. Throws ConfigError [RT-F19].
    explicit Swa(detail::WeightParts model) : AveragedWeights(std::move(model)) {}

    /// Averages the model's weights in.
    void update() { average(1 / static_cast<double>(count() + 1)); }

    /// Called by Fit.
    void on_train_epoch_end(torch::nn::Module& module, Step& step);
    void on_test_start(torch::nn::Module& module, Step& step);    ///< called by Fit
    void on_predict_start(torch::nn::Module& module, Step& step); ///< called by Fit

private:
    SwaOptions options_;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/fit/callbacks/averaged_weights_definitions.hpp>
#endif
