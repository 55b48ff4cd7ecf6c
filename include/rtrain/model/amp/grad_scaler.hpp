// SPDX-License-Identifier: Apache-2.0
/// @file
/// Loss scaling for float16: gradients too small for the type are scaled up, and steps whose
/// gradients overflow are skipped (Micikevicius et al., "Mixed precision training", ICLR 2018,
/// section 3.2). The algorithm and defaults are those of torch.amp.GradScaler.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/options/sharded_options.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <torch/utils.h>

#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace rtrain {

/// PyTorch's options of a GradScaler, with its defaults.
struct GradScalerOptions {
    double init_scale = 65536;   ///< what the first losses are multiplied by
    double growth_factor = 2;    ///< the scale grows by it after `growth_interval` good steps
    double backoff_factor = 0.5; ///< and shrinks by it when gradients overflowed
    int growth_interval = 2000;  ///< finite steps before the scale grows
    /// Overflow at a smaller scale is an error (RT-M22): gradients are then infinite or NaN at any
    /// scale, and every step would be skipped. 0: never.
    double min_scale = 1e-6;
    bool enabled = true; ///< false: scale() and update() do nothing, step() steps
};

/// Scales losses so that float16 gradients do not vanish, and skips steps that overflow.
///
/// @code
/// rtrain::GradScaler scaler;
/// auto state = rtrain::State{}.add("model", model).add("scaler", scaler);
/// for (auto& batch : batches) {
///     optimizer.zero_grad();
///     scaler.scale(loss_of(model(batch["x"]), batch["y"])).backward();
///     scaler.step(optimizer);
///     scaler.update();
/// }
/// @endcode
///
/// Ranks agree about each step without communication, because averaged gradients are checked: one
/// rank's infinity or NaN is in the average of all. Under `no_sync()` and LocalSgd each rank
/// decides for itself. bfloat16 has float32's range and needs no scaler.
class GradScaler {
public:
    /// Throws ConfigError [RT-C11] for options out of range.
    explicit GradScaler(const GradScalerOptions& options = {})
        : options_(options), scale_(static_cast<float>(options.init_scale)) {
        if (!(scale_ > 0 && std::isfinite(scale_) && options.growth_factor > 1 &&
              options.backoff_factor > 0 && options.backoff_factor < 1 &&
              options.growth_interval > 0 && options.min_scale >= 0)) {
            throw ConfigError(
                "RT-C11", rtrain::detail::concat("a GradScaler has init_scale ", options.init_scale,
                                                 ", growth_factor ", options.growth_factor,
                                                 ", backoff_factor ", options.backoff_factor,
                                                 ", growth_interval ", options.growth_interval,
                                                 ", min_scale ", options.min_scale,
                                                 "; expected above 0 and finite as a float, above "
                                                 "1, between 0 and 1, at least 1, at least 0"));
        }
    }

    /// The loss, or another root of backward, multiplied by the scale.
    [[nodiscard]] at::Tensor scale(const at::Tensor& loss) const {
        return options_.enabled ? loss * scale_ : loss;
    }

    /// Divides the gradients of the optimizer's parameters by the scale. step() does it; call it
    /// earlier for code that reads gradients, such as clipping. Throws ModelError: RT-M18 if called
    /// twice for one step, RT-M19 if a gradient is float16 (parameters must be float32);
    /// ConfigError [RT-C12] for an optimizer of a model with step_in_backward.
    template <class Optimizer>
    void unscale_(Optimizer& optimizer) {
        if (!options_.enabled) {
            return;
        }
        if constexpr (requires { optimizer.steps_in_backward(); }) {
            if (optimizer.steps_in_backward()) {
                detail::refuse_with_step_in_backward(
                    "a GradScaler divides gradients before a step");
            }
        }
        Progress& progress = progress_[&optimizer];
        if (progress.unscaled) {
            throw_order("unscale_() was called twice, or after step(), for one optimizer");
        }
        const torch::NoGradGuard no_grad;
        const auto inverse = static_cast<float>(1.0 / static_cast<double>(scale_));
        for (auto& [kind, gradients] : gradients_of(optimizer)) {
            const auto type = gradients.front().options().dtype(at::kFloat);
            at::Tensor overflow = at::zeros({1}, type);
            at::_amp_foreach_non_finite_check_and_unscale_(gradients, overflow,
                                                           at::full({1}, inverse, type));
            progress.overflowed = progress.overflowed || overflow.item<float>() != 0;
            progress.checked = true;
        }
        if constexpr (requires { optimizer.on_any_rank(true); }) { // ranks may hold parts of them
            progress.checked = optimizer.on_any_rank(progress.checked);
            progress.overflowed = optimizer.on_any_rank(progress.overflowed);
        }
        progress.unscaled = true;
    }

    /// Calls optimizer.step() with unscaled gradients, unless one of them is infinite or NaN.
    /// Returns whether it stepped. Throws ModelError [RT-M18] if called twice before update(), or
    /// without any gradient.
    template <class Optimizer>
    bool step(Optimizer& optimizer) {
        if (!options_.enabled) {
            optimizer.step();
            return true;
        }
        Progress& progress = progress_[&optimizer];
        if (progress.stepped) {
            throw_order("step() was called twice for one optimizer");
        }
        if (!progress.unscaled) {
            unscale_(optimizer);
        }
        if (!progress.checked) {
            throw_order("step() found no gradients; call backward() before it");
        }
        progress.stepped = true;
        if (!progress.overflowed) {
            optimizer.step();
        }
        return !progress.overflowed;
    }

    /// Ends the iteration, after step() for every optimizer: adjusts the scale. Throws ModelError
    /// [RT-M18] when no gradients were checked; [RT-M22] when the scale falls below `min_scale`.
    void update() {
        if (!options_.enabled) {
            return;
        }
        bool checked = false;
        bool overflowed = false;
        for (const auto& [optimizer, progress] : progress_) {
            checked = checked || progress.checked;
            overflowed = overflowed || progress.overflowed;
        }
        if (!checked) {
            throw_order("update() was called without step() before it");
        }
        progress_.clear();
        if (overflowed) {
            scale_ = static_cast<float>(scale_ * options_.backoff_factor);
            good_steps_ = 0;
            if (scale_ < options_.min_scale) {
                throw ModelError(
                    "RT-M22", detail::concat("GradScaler: gradients are infinite or NaN at every "
                                             "scale down to ",
                                             scale_,
                                             ", so every step is skipped; check the loss and the "
                                             "batches, lower the learning rate or clip gradients"));
            }
        } else if (++good_steps_ == options_.growth_interval) {
            const auto larger = static_cast<float>(scale_ * options_.growth_factor);
            scale_ = std::isfinite(larger) ? larger : scale_;
            good_steps_ = 0;
        }
    }

    /// The factor that losses are multiplied by now.
    [[nodiscard]] double current_scale() const noexcept { return options_.enabled ? scale_ : 1; }

    /// For State::add(): the scale and the number of good steps since it changed.
    void save(StateWriter& out) const {
        out.value("scale", scale_);
        out.value("good_steps", good_steps_);
    }
    void load(const StateReader& in) {
        scale_ = in.value("scale").to_number<float>();
        good_steps_ = in.value("good_steps").to_number<int>();
        progress_.clear();
    }

private:
    /// An optimizer's progress in this iteration.
    struct Progress {
        bool unscaled = false;
        bool stepped = false;
        bool checked = false;    ///< it has gradients
        bool overflowed = false; ///< one of them is infinite or NaN
    };

    /// Groups gradients by device and type, as the kernel requires.
    template <class Optimizer>
    static auto gradients_of(Optimizer& optimizer) {
        std::map<std::tuple<int, int, at::ScalarType>, std::vector<at::Tensor>> gradients;
        for (auto& group : optimizer.param_groups()) {
            for (at::Tensor& parameter : group.params()) {
                at::Tensor gradient = parameter.mutable_grad();
                if (!gradient.defined()) {
                    continue;
                }
                if (gradient.is_sparse()) { // duplicates of an index may overflow when added up
                    parameter.mutable_grad() = gradient.coalesce();
                    gradient = parameter.mutable_grad()._values();
                }
                if (gradient.scalar_type() == at::kHalf) {
                    throw ModelError("RT-M19",
                                     "a gradient is Half, which cannot be unscaled; keep the "
                                     "parameters in Float and run forward under autocast");
                }
                gradients[{static_cast<int>(gradient.device().type()), gradient.device().index(),
                           gradient.scalar_type()}]
                    .push_back(gradient);
            }
        }
        return gradients;
    }

    [[noreturn]] static void throw_order(const char* what) {
        throw ModelError("RT-M18", detail::concat("GradScaler: ", what,
                                                  "; each iteration is scale(loss).backward(), "
                                                  "step(optimizer), update()"));
    }

    GradScalerOptions options_;
    float scale_;
    int good_steps_ = 0;                       ///< since the scale changed
    std::map<const void*, Progress> progress_; ///< by optimizer
};

} // namespace rtrain
