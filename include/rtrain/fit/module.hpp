// SPDX-License-Identifier: Apache-2.0
/// @file
/// FitModule: what Fit requires of a module and of callbacks, and messages about what is missing.
#pragma once

#include <rtrain/config/config.hpp>
#include <rtrain/config/described.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/fit/hooks.hpp>
#include <rtrain/fit/plan.hpp>
#include <rtrain/fit/step.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <concepts>
#include <functional>

namespace rtrain {

namespace detail {

/// True unless the module sets `static constexpr bool automatic_optimization = false`.
template <class M>
[[nodiscard]] consteval bool optimizes_automatically() {
    if constexpr (requires { M::automatic_optimization; }) {
        return M::automatic_optimization;
    } else {
        return true;
    }
}
template <class M>
concept HasTrainingStep = requires(M& module, const data::Batch& batch, Step& step) {
    module.training_step(batch, step);
    requires !optimizes_automatically<M>() || requires {
        { module.training_step(batch, step) } -> std::convertible_to<at::Tensor>;
    };
};
template <class M>
concept HasValidationStep = requires(M& module, const data::Batch& batch, Step& step) {
    module.validation_step(batch, step);
};
template <class M>
concept HasTestStep = requires(M& module, const data::Batch& batch, Step& step) {
    module.test_step(batch, step);
};
template <class M>
concept HasPredictStep = requires(M& module, const data::Batch& batch, Step& step) {
    { module.predict_step(batch, step) } -> std::convertible_to<at::Tensor>;
};
template <class M>
concept ConfiguresOptimizers = requires(M& module, const Plan& plan) {
    module.configure_optimizers(plan);
};
template <class M>
concept ClipsGradients = requires(M& module, Step& step) {
    module.configure_gradient_clipping(step);
};
template <class M>
concept StepsOptimizer = requires(M& module, Step& step, const std::function<void()>& next) {
    module.optimizer_step(step, next);
};

template <class M>
concept NamesConfig =
    Described<typename M::Config> || std::constructible_from<M, const typename M::Config&>;
/// The configuration of a Fit of `M`: the module's member type Config, if it is one.
template <class M>
struct ConfigOfModule {
    using type = Config;
};
template <NamesConfig M>
struct ConfigOfModule<M> {
    using type = typename M::Config;
};
template <class M>
using ModuleConfig = typename ConfigOfModule<M>::type;

} // namespace detail

/// A module that Fit trains: a torch::nn::Module with
/// - `at::Tensor training_step(const rtrain::data::Batch& batch, rtrain::Step& step)`, which
/// returns
///   the loss, a mean over the rows of the batch. With `static constexpr bool
///   automatic_optimization = false` it may return anything, and calls step.backward() and
///   step.step<0>() itself.
/// - `auto configure_optimizers(const rtrain::Plan& plan)`, which returns an optimizer, the result
///   of optimize(), or a tuple of them.
///
/// Optional:
/// - `using Config = Hyper;`, a described struct that the constructor takes instead of
///   rtrain::Config; see docs/configuration.md.
/// - `validation_step`, `test_step`: like training_step; a tensor that they return is logged as
///   "loss". `predict_step` returns a tensor with a row for each row of the batch.
/// - `void configure_gradient_clipping(rtrain::Step& step)`, instead of clip_norm and clip_value.
/// - `void optimizer_step(rtrain::Step& step, const std::function<void()>& next)`, around the step.
/// - the hooks of docs/fit.md.
template <class M>
concept FitModule = std::derived_from<M, torch::nn::Module> && detail::HasTrainingStep<M> &&
    detail::ConfiguresOptimizers<M>;

namespace detail {

/// Explains why `M` is not a FitModule, or which optional member would be silently ignored.
template <class M>
struct ExplainModule {
    static_assert(std::derived_from<M, torch::nn::Module>,
                  "rtrain: FitModule not met: derive the module from torch::nn::Module [RT-F2]");
    static_assert(HasTrainingStep<M>,
                  "rtrain: FitModule not met: give the module `at::Tensor training_step(const "
                  "rtrain::data::Batch& batch, rtrain::Step& step)` [RT-F3]");
    static_assert(ConfiguresOptimizers<M>,
                  "rtrain: FitModule not met: give the module `auto configure_optimizers(const "
                  "rtrain::Plan& plan)` [RT-F4]");
#define RTRAIN_FIT_MEMBER(name, is_met, signature)                                                 \
    static_assert(                                                                                 \
        !requires { &M::name; } || is_met<M>,                                                      \
        "rtrain: this module's `" #name "` is not `" signature "` [RT-F5]");
    RTRAIN_FIT_MEMBER(validation_step, HasValidationStep,
                      "auto validation_step(const rtrain::data::Batch& batch, rtrain::Step& step)")
    RTRAIN_FIT_MEMBER(test_step, HasTestStep,
                      "auto test_step(const rtrain::data::Batch& batch, rtrain::Step& step)")
    RTRAIN_FIT_MEMBER(
        predict_step, HasPredictStep,
        "at::Tensor predict_step(const rtrain::data::Batch& batch, rtrain::Step& step)")
    RTRAIN_FIT_MEMBER(configure_gradient_clipping, ClipsGradients,
                      "void configure_gradient_clipping(rtrain::Step& step)")
    RTRAIN_FIT_MEMBER(optimizer_step, StepsOptimizer,
                      "void optimizer_step(rtrain::Step& step, const std::function<void()>& next)")
#undef RTRAIN_FIT_MEMBER
#define RTRAIN_FIT_HOOK(name, arguments, signature)                                                \
    static_assert(                                                                                 \
        !requires { &M::name; } || has_hook<M, name##_hook>,                                       \
        "rtrain: this module's `" #name "` is not `void " #name "(" signature ")` [RT-F5]");
    RTRAIN_FIT_HOOKS(RTRAIN_FIT_HOOK)
#undef RTRAIN_FIT_HOOK
};

/// Explains what is wrong with a callback `C` of a Fit of `M`.
template <class C, class M>
struct ExplainFitCallback {
    static_assert(std::copy_constructible<C>,
                  "rtrain: a callback of Fit is copied for each attempt: make it copyable [RT-F6]");
#define RTRAIN_FIT_HOOK(name, arguments, signature)                                                \
    static_assert(                                                                                 \
        !requires { &C::name; } || has_hook<C, name##_hook, M>,                                    \
        "rtrain: this callback's `" #name "` is not `void " #name "(Module& module, " signature    \
        ")` [RT-F6]");
    RTRAIN_FIT_HOOKS(RTRAIN_FIT_HOOK)
#undef RTRAIN_FIT_HOOK
    static_assert(
        HasAnyHook<C, M> || ChoosesAccumulation<C>,
        "rtrain: this callback of Fit has none of the hooks of docs/fit.md, such as `void "
        "on_train_epoch_end(Module& module, rtrain::Step& step)` [RT-F7]");
};

#undef RTRAIN_FIT_HOOKS

} // namespace detail
} // namespace rtrain
