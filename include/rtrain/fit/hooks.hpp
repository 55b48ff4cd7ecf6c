// SPDX-License-Identifier: Apache-2.0
/// @file
/// The hooks of Fit, with the names of Lightning's: which ones a module or a callback has, and
/// messages about those whose signature is different.
#pragma once

#include <rtrain/data/batch/batch.hpp>
#include <rtrain/fit/step.hpp>
#include <rtrain/model/weight_parts.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <concepts>
#include <exception>

namespace rtrain::detail {

/// The arguments of a hook of a module; a callback's has the module before them.
template <class... A>
struct HookArguments {};

using OfStep = HookArguments<Step>;
using OfBatch = HookArguments<const data::Batch, Step>;
using OfLoss = HookArguments<const at::Tensor, Step>;
using OfOptimizer = HookArguments<torch::optim::Optimizer, Step>;
using OfException = HookArguments<const std::exception, Step>;
using OfWriter = HookArguments<StateWriter>;
using OfReader = HookArguments<const StateReader>;

/// Calls `X(name, arguments, signature)` for each hook, in the order in which they are documented.
#define RTRAIN_FIT_HOOKS(X)                                                                        \
    X(setup, OfStep, "rtrain::Step& step")                                                         \
    X(teardown, OfStep, "rtrain::Step& step")                                                      \
    X(on_fit_start, OfStep, "rtrain::Step& step")                                                  \
    X(on_fit_end, OfStep, "rtrain::Step& step")                                                    \
    X(on_sanity_check_start, OfStep, "rtrain::Step& step")                                         \
    X(on_sanity_check_end, OfStep, "rtrain::Step& step")                                           \
    X(on_train_start, OfStep, "rtrain::Step& step")                                                \
    X(on_train_end, OfStep, "rtrain::Step& step")                                                  \
    X(on_train_epoch_start, OfStep, "rtrain::Step& step")                                          \
    X(on_train_epoch_end, OfStep, "rtrain::Step& step")                                            \
    X(on_train_batch_start, OfBatch, "const rtrain::data::Batch& batch, rtrain::Step& step")       \
    X(on_train_batch_end, OfBatch, "const rtrain::data::Batch& batch, rtrain::Step& step")         \
    X(on_validation_start, OfStep, "rtrain::Step& step")                                           \
    X(on_validation_end, OfStep, "rtrain::Step& step")                                             \
    X(on_validation_epoch_start, OfStep, "rtrain::Step& step")                                     \
    X(on_validation_epoch_end, OfStep, "rtrain::Step& step")                                       \
    X(on_validation_batch_start, OfBatch, "const rtrain::data::Batch& batch, rtrain::Step& step")  \
    X(on_validation_batch_end, OfBatch, "const rtrain::data::Batch& batch, rtrain::Step& step")    \
    X(on_test_start, OfStep, "rtrain::Step& step")                                                 \
    X(on_test_end, OfStep, "rtrain::Step& step")                                                   \
    X(on_test_epoch_start, OfStep, "rtrain::Step& step")                                           \
    X(on_test_epoch_end, OfStep, "rtrain::Step& step")                                             \
    X(on_test_batch_start, OfBatch, "const rtrain::data::Batch& batch, rtrain::Step& step")        \
    X(on_test_batch_end, OfBatch, "const rtrain::data::Batch& batch, rtrain::Step& step")          \
    X(on_predict_start, OfStep, "rtrain::Step& step")                                              \
    X(on_predict_end, OfStep, "rtrain::Step& step")                                                \
    X(on_predict_epoch_start, OfStep, "rtrain::Step& step")                                        \
    X(on_predict_epoch_end, OfStep, "rtrain::Step& step")                                          \
    X(on_predict_batch_start, OfBatch, "const rtrain::data::Batch& batch, rtrain::Step& step")     \
    X(on_predict_batch_end, OfBatch, "const rtrain::data::Batch& batch, rtrain::Step& step")       \
    X(on_before_zero_grad, OfOptimizer, "torch::optim::Optimizer& optimizer, rtrain::Step& step")  \
    X(on_before_backward, OfLoss, "const at::Tensor& loss, rtrain::Step& step")                    \
    X(on_after_backward, OfStep, "rtrain::Step& step")                                             \
    X(on_before_optimizer_step, OfOptimizer,                                                       \
      "torch::optim::Optimizer& optimizer, rtrain::Step& step")                                    \
    X(on_exception, OfException, "const std::exception& error, rtrain::Step& step")                \
    X(on_save_checkpoint, OfWriter, "rtrain::StateWriter& out")                                    \
    X(on_load_checkpoint, OfReader, "const rtrain::StateReader& in")

/// Hook::has<T, Before, Arguments>: T has the hook, with Before ahead of the arguments.
#define RTRAIN_FIT_HOOK(name, arguments, signature)                                                \
    struct name##_hook {                                                                           \
        using Arguments = arguments;                                                               \
        template <class T, class... A>                                                             \
        static constexpr bool takes = requires(T & t, A&... a) {                                   \
            t.name(a...);                                                                          \
        };                                                                                         \
        template <class T, class... Before, class... A>                                            \
        static consteval bool has(HookArguments<A...> /*of*/, HookArguments<Before...> /*of*/) {   \
            return takes<T, Before..., A...>;                                                      \
        }                                                                                          \
        static void call(auto& t, auto&... a) { t.name(a...); }                                    \
    };
RTRAIN_FIT_HOOKS(RTRAIN_FIT_HOOK)
#undef RTRAIN_FIT_HOOK

/// T has the hook. `Before`: see HookArguments.
template <class T, class Hook, class... Before>
inline constexpr bool has_hook = Hook::template has<T>(typename Hook::Arguments(),
                                                       HookArguments<Before...>());

/// A callback that is called with a module `M` for one of the hooks.
template <class C, class M>
concept HasAnyHook = false
#define RTRAIN_FIT_HOOK(name, arguments, signature) || has_hook<C, name##_hook, M>
    RTRAIN_FIT_HOOKS(RTRAIN_FIT_HOOK)
#undef RTRAIN_FIT_HOOK
    ;

/// A callback that chooses the number of batches in a step.
template <class C>
concept ChoosesAccumulation = requires(const C& callback, int epoch) {
    { callback.accumulate(epoch) } -> std::same_as<int>;
};
/// A callback that averages the model's weights.
template <class C>
concept AveragesWeights = requires(C& callback, WeightParts model) {
    callback.bind(model);
};
/// A callback that checkpoints hold.
template <class C>
concept SavedCallback = requires(const C& saved, C& loaded, StateWriter& out,
                                 const StateReader& in) {
    saved.save(out);
    loaded.load(in);
};

} // namespace rtrain::detail
