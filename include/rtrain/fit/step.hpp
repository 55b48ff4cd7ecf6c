// SPDX-License-Identifier: Apache-2.0
/// @file
/// Step: where a training by Fit is, and what its functions may do there.
#pragma once

#include <rtrain/fit/logged.hpp>
#include <rtrain/fit/plan.hpp>
#include <rtrain/track/lines/step_value.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rtrain {

/// The part of a training by Fit.
enum class Stage : unsigned char {
    sanity_check, ///< trying validation before training
    train,        ///< training
    validate,     ///< validation
    test,         ///< Fit::test()
    predict       ///< Fit::predict()
};

namespace detail {

template <class M, class W, class... Callbacks>
class FitContext;
template <class M, class W, class... Callbacks>
class FitLoop;

/// The loop of a Step.
class FitActions {
public:
    virtual void backward(const at::Tensor& loss) = 0;
    virtual void zero_grad(std::size_t optimizer) = 0;
    virtual void step(std::size_t optimizer) = 0;
    [[nodiscard]] virtual torch::optim::Optimizer& optimizer(std::size_t number) = 0;
    [[nodiscard]] virtual std::size_t optimizers() const = 0;

protected:
    ~FitActions() = default;
};

/// The counters of a training, which its checkpoints hold.
struct FitProgress {
    int epoch = 0;
    std::int64_t steps = 0;      ///< optimizer steps
    std::int64_t batch = 0;      ///< of this rank in the epoch
    int window = 0;              ///< batches of the current window that have run
    std::int64_t unreported = 0; ///< steps since the last report
};

} // namespace detail

/// Where a training by Fit is; the argument of its functions and hooks.
class Step {
public:
    /// Used by Fit.
    Step(detail::FitActions& actions, const Plan& plan, int rank, detail::Logged& logged) noexcept
        : actions_(actions), plan_(plan), rank_(rank), logged_(&logged) {}
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

    /// The epoch, from 0.
    [[nodiscard]] int epoch() const noexcept { return progress_.epoch; }
    /// The number of optimizer steps so far.
    [[nodiscard]] std::int64_t steps() const noexcept { return progress_.steps; }
    /// The number of this rank's batch in the epoch, or in the evaluation, from 0.
    [[nodiscard]] std::int64_t batch() const noexcept {
        return stage_ == Stage::train ? progress_.batch : evaluated_;
    }
    /// True in the last batch of a window of FitOptions::accumulate, in which optimizers step.
    [[nodiscard]] bool ends_window() const noexcept { return ends_window_; }
    /// The part of the training.
    [[nodiscard]] Stage stage() const noexcept { return stage_; }
    /// This rank.
    [[nodiscard]] int rank() const noexcept { return rank_; }
    /// The length of the training.
    [[nodiscard]] const Plan& plan() const noexcept { return plan_; }

    /// Logs a number, or a tensor of one element; during validation under "val/" and its name. The
    /// next report has its mean over the rows of all ranks. Ranks may log different names. Throws
    /// ConfigError [RT-F14] for other tensors, Error [RT-V46] for a name with two reductions.
    void log(std::string_view name, const StepValue& value, const LogOptions& options = {}) {
        logged_->add(name, value, rows_, options);
    }

    /// Makes this epoch the last, once one rank has called it; see FitOptions::min_epochs.
    void stop() noexcept { is_to_stop_ = true; }

    /// Runs backward from a loss, with `automatic_optimization = false`. Gradients are averaged
    /// over ranks, and added to earlier ones.
    void backward(const at::Tensor& loss) { actions_.backward(loss); }
    /// Zeroes the gradients of an optimizer, with `automatic_optimization = false`.
    template <std::size_t Number = 0>
    void zero_grad() {
        actions_.zero_grad(Number);
    }
    /// Makes a step of an optimizer and its schedule, with `automatic_optimization = false`.
    template <std::size_t Number = 0>
    void step() {
        actions_.step(Number);
    }
    /// An optimizer of configure_optimizers(), in its order.
    template <std::size_t Number = 0>
    [[nodiscard]] torch::optim::Optimizer& optimizer() {
        return actions_.optimizer(Number);
    }
    /// The same, by a number known at run time.
    [[nodiscard]] torch::optim::Optimizer& optimizer(std::size_t number) {
        return actions_.optimizer(number);
    }
    /// The number of optimizers.
    [[nodiscard]] std::size_t optimizers() const { return actions_.optimizers(); }

private:
    template <class M, class W, class... Callbacks>
    friend class detail::FitContext;
    template <class M, class W, class... Callbacks>
    friend class detail::FitLoop;

    detail::FitActions& actions_;
    const Plan& plan_;
    int rank_;
    Stage stage_ = Stage::train;
    detail::FitProgress progress_;
    std::int64_t evaluated_ = 0; ///< batches of an evaluation
    double rows_ = 1;            ///< of the batch
    detail::Logged* logged_;
    bool ends_window_ = false;
    bool is_to_stop_ = false;
};

} // namespace rtrain
