// SPDX-License-Identifier: Apache-2.0
/// @file
/// The result of `worker.prepare(optimizer)`: SGD, Adam or AdamW whose step is one fused kernel
/// over all parameters, instead of several operations for each.
///
/// The kernels are ATen's `_fused_sgd_`, `_fused_adam_` and `_fused_adamw_`, which take lists of
/// tensors. Parameters in one flat tensor would save 0.2 us each, at most 0.8 (Adam, 200 parameters
/// of 3,350 elements), which does not pay for moving the user's parameters.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/optimizer/node_step.hpp>
#include <rtrain/model/optimizer/sharded_optimizer_base.hpp>
#include <rtrain/model/parameters/recording.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <torch/optim.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain {

namespace detail {

/// Tensors that one fused call updates together: equal in type, device and number of steps.
struct FusedBatch {
    at::ScalarType type;
    at::Device device;
    std::int64_t step;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::array<std::vector<at::Tensor>, 3> state;
};

[[nodiscard]] inline bool same_layout(const at::Tensor& a, const at::Tensor& b) {
    return a.sizes() == b.sizes() &&
           (a.strides() == b.strides() || (a.is_contiguous() && b.is_contiguous()));
}

/// Gives `tensor` the layout of `like`, because the kernels traverse memory, not indices.
inline void lay_out_as(at::Tensor& tensor, const at::Tensor& like) {
    if (!same_layout(tensor, like)) {
        tensor = at::empty_like(like).copy_(tensor);
    }
}

using OptimizerStates =
    std::remove_cvref_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;

template <class State>
State& state_of(OptimizerStates& states, const at::Tensor& parameter) {
    auto& state = states[parameter.unsafeGetTensorImpl()];
    if (!state) {
        state = std::make_unique<State>();
    }
    return static_cast<State&>(*state);
}

/// An optimizer's state for a parameter, and its kernel. Undefined for optimizers without one.
template <class O>
struct Fused;

template <>
struct Fused<torch::optim::SGD> {
    using Options = torch::optim::SGDOptions;

    /// The most tensors that advance() puts into `kept`.
    static std::size_t moments(const Options& options) { return options.momentum() == 0 ? 0 : 1; }
    /// Puts the momentum into `kept`; returns 0 on its first step.
    static std::int64_t advance(OptimizerStates& states, const Options& options,
                                const at::Tensor& key, const at::Tensor& parameter,
                                std::array<at::Tensor, 3>& kept) {
        if (options.momentum() == 0) {
            return 1;
        }
        at::Tensor& momentum = state_of<torch::optim::SGDParamState>(states, key).momentum_buffer();
        const bool first = !momentum.defined();
        if (first) {
            momentum = at::empty_like(parameter);
        }
        lay_out_as(momentum, parameter);
        kept[0] = momentum;
        return first ? 0 : 1;
    }

    static void run(const FusedBatch& batch, const Options& o) { run(batch, o, o.lr()); }
    static void record(const FusedBatch& batch, const Options& o, Recording& recording) {
        if (batch.step == 0) {
            throw_not_capturable("an optimizer with momentum makes its first step in it; call the "
                                 "optimizer's step() in every call");
        }
        run(batch, o, recording.number(batch.device, [&o] { return o.lr(); }));
    }

private:
    template <class Lr>
    static void run(const FusedBatch& batch, const Options& o, const Lr& lr) {
        at::_fused_sgd_(batch.parameters, batch.gradients, batch.state[0], o.weight_decay(),
                        o.momentum(), lr, o.dampening(), o.nesterov(), false, batch.step == 0);
    }
};

template <class OptionsOfAdam, class State>
struct FusedAdam {
    using Options = OptionsOfAdam;

    static std::size_t moments(const Options& options) { return options.amsgrad() ? 3 : 2; }
    /// Puts the moments into `kept`; returns the number of this step, from 1.
    static std::int64_t advance(OptimizerStates& states, const Options& options,
                                const at::Tensor& key, const at::Tensor& parameter,
                                std::array<at::Tensor, 3>& kept) {
        State& state = state_of<State>(states, key);
        const auto keep = [&](at::Tensor& moment, std::size_t place) {
            if (!moment.defined()) {
                moment = at::zeros_like(parameter);
            }
            lay_out_as(moment, parameter);
            kept[place] = moment;
        };
        keep(state.exp_avg(), 0);
        keep(state.exp_avg_sq(), 1);
        if (options.amsgrad()) {
            keep(state.max_exp_avg_sq(), 2);
        }
        state.step(state.step() + 1);
        return state.step();
    }

    /// Counts another step of the parameter.
    static void count_step(OptimizerStates& states, const at::Tensor& parameter) {
        State& state = state_of<State>(states, parameter);
        state.step(state.step() + 1);
    }

    template <class Kernel>
    static void run_with(Kernel&& kernel, const FusedBatch& batch, const Options& o) {
        const at::Tensor step = at::scalar_tensor(static_cast<double>(batch.step),
                                                  at::device(batch.device).dtype(at::kFloat));
        call(kernel, batch, o, step, o.lr());
    }
    template <class Kernel>
    static void record_with(Kernel&& kernel, const FusedBatch& batch, const Options& o,
                            Recording& recording) {
        auto step = std::make_shared<std::int64_t>(batch.step);
        recording.before_again([step] { ++*step; });
        call(kernel, batch, o,
             recording.number(batch.device, [step] { return static_cast<double>(*step); }),
             recording.number(batch.device, [&o] { return o.lr(); }));
    }

private:
    template <class Kernel, class Lr>
    static void call(Kernel&& kernel, const FusedBatch& batch, const Options& o,
                     const at::Tensor& step, const Lr& lr) {
        const auto [beta1, beta2] = o.betas();
        kernel(batch.parameters, batch.gradients, batch.state[0], batch.state[1], batch.state[2],
               std::vector<at::Tensor>(batch.parameters.size(), step), lr, beta1, beta2,
               o.weight_decay(), o.eps(), o.amsgrad(), false);
    }
};

template <>
struct Fused<torch::optim::Adam>
    : FusedAdam<torch::optim::AdamOptions, torch::optim::AdamParamState> {
    static void run(const FusedBatch& batch, const Options& options) {
        run_with(kernel, batch, options);
    }
    static void record(const FusedBatch& batch, const Options& options, Recording& recording) {
        record_with(kernel, batch, options, recording);
    }

private:
    static constexpr auto kernel = [](auto&&... arguments) { at::_fused_adam_(arguments...); };
};

template <>
struct Fused<torch::optim::AdamW>
    : FusedAdam<torch::optim::AdamWOptions, torch::optim::AdamWParamState> {
    static void run(const FusedBatch& batch, const Options& options) {
        run_with(kernel, batch, options);
    }
    static void record(const FusedBatch& batch, const Options& options, Recording& recording) {
        record_with(kernel, batch, options, recording);
    }

private:
    static constexpr auto kernel = [](auto&&... arguments) { at::_fused_adamw_(arguments...); };
};

template <class O>
concept Fusible = std::derived_from<O, torch::optim::Optimizer> && requires {
    typename Fused<O>::Options;
};

} // namespace detail

/// An `O` in every respect except the step: options, parameter groups, learning-rate schedulers,
/// checkpoints (also ones of a plain `O`), zero_grad(). Computes the same values up to rounding.
///
/// @code
/// auto optimizer = worker.prepare(torch::optim::Adam(model->parameters(), 1e-3));
/// @endcode
///
/// For a sharded model, holds and steps this rank's parts; step() is then *collective*. So it is
/// for a large model whose copies on the ranks of a node have the same gradients: each rank steps a
/// slice, in memory that the node shares (node_step.hpp).
template <detail::Fusible O>
class FusedOptimizer final : public detail::ShardedOptimizerBase<O> {
public:
    explicit FusedOptimizer(O optimizer, const detail::SharedModels& models = {})
        : detail::ShardedOptimizerBase<O>(std::move(optimizer), models) {}
    FusedOptimizer(FusedOptimizer&& other)
        : detail::ShardedOptimizerBase<O>(std::move(other)), node_(std::move(other.node_)) {}

    void loaded(const at::Tensor& parameter) override {
        detail::ShardedOptimizerBase<O>::loaded(parameter);
        recorded_ = std::make_shared<int>();
    }

    /// Updates the parameters that have a gradient; sparse gradients count as dense ones. Throws
    /// ModelError [RT-M8] for parameters that are not real floating-point numbers.
    at::Tensor step(typename O::LossClosure closure = nullptr) override {
        return this->step_parts(closure);
    }

private:
    using Kernel = detail::Fused<O>;

    void step_now() override {
        const torch::NoGradGuard no_grad;
        std::size_t moments = 0;
        for (auto& group : this->param_groups()) {
            moments = std::max(moments, Kernel::moments(options_of(group)));
        }
        together_ = !this->parts_.any() && node_.begin(*this, moments);
        for (auto& group : this->param_groups()) {
            step_group(group);
        }
        if (together_) {
            node_.end();
        }
    }

    static const typename Kernel::Options& options_of(torch::optim::OptimizerParamGroup& group) {
        return static_cast<const typename Kernel::Options&>(group.options());
    }

    void step_group(torch::optim::OptimizerParamGroup& group) {
        const auto& options = options_of(group);
        auto* const recording = detail::Recording::current();
        for (at::Tensor& parameter : group.params()) {
            if (parameter.grad().defined()) {
                add(parameter, options);
            }
        }
        if (recording != nullptr) {
            follow(*recording, group, options);
        }
        for (detail::FusedBatch& batch : batches_) {
            if (!batch.parameters.empty()) {
                recording == nullptr ? Kernel::run(batch, options)
                                     : Kernel::record(batch, options, *recording);
            }
            batch.parameters.clear(); // keeps its capacity; the tensors may be freed
            batch.gradients.clear();
            for (auto& list : batch.state) {
                list.clear();
            }
        }
        for (auto& [parameter, dense] : dense_copies_) {
            parameter.copy_(dense);
        }
        dense_copies_.clear();
        if (recording != nullptr) {
            std::ranges::for_each(group.params(), [&](const auto& it) { recording->stepped(it); });
        }
    }

    /// Makes each replay count its step, and check that what the graph captured is unchanged.
    void follow(detail::Recording& recording, torch::optim::OptimizerParamGroup& group,
                const typename Kernel::Options& options) {
        typename Kernel::Options recorded = options;
        recording.before([this, alive = std::weak_ptr(recorded_), &options, recorded]() mutable {
            if (alive.expired()) {
                detail::throw_changed_since_capture("an optimizer has moved, ended or been loaded");
            }
            recorded.lr(options.lr()); // only the learning rate may change
            if (!(recorded == options)) {
                detail::throw_changed_since_capture("options of an optimizer, other than the "
                                                    "learning rate, have changed");
            }
        });
        if constexpr (requires { Kernel::count_step(this->state(), group.params()[0]); }) {
            recording.before_again([this, alive = std::weak_ptr(recorded_), &group] {
                for (const at::Tensor& parameter : group.params()) {
                    if (!alive.expired() && parameter.grad().defined()) {
                        Kernel::count_step(this->state(), parameter);
                    }
                }
            });
        }
    }

    void add(at::Tensor& parameter, const typename Kernel::Options& options) {
        at::Tensor dense = parameter;
        if (!parameter.is_non_overlapping_and_dense()) {
            dense = at::empty_like(parameter).copy_(parameter);
            dense_copies_.emplace_back(parameter, dense);
        }
        at::Tensor gradient = parameter.grad();
        if (gradient.is_sparse()) {
            gradient = gradient.to_dense();
        }
        detail::lay_out_as(gradient, dense);
        std::array<at::Tensor, 3> kept;
        const auto step = Kernel::advance(this->state(), options, parameter, dense, kept);
        if (together_) {
            node_.cut(*this, parameter, {dense, gradient, kept});
        }
        detail::FusedBatch& batch = batch_for(dense, step);
        batch.parameters.push_back(std::move(dense));
        batch.gradients.push_back(std::move(gradient));
        for (std::size_t i = 0; i < kept.size(); ++i) {
            if (kept[i].defined()) {
                batch.state[i].push_back(std::move(kept[i]));
            }
        }
    }

    detail::FusedBatch& batch_for(const at::Tensor& parameter, std::int64_t step) {
        detail::FusedBatch* free = nullptr;
        for (detail::FusedBatch& batch : batches_) {
            if (batch.parameters.empty()) {
                free = &batch;
            } else if (batch.step == step && batch.type == parameter.scalar_type() &&
                       batch.device == parameter.device()) {
                return batch;
            }
        }
        if (!at::isFloatingType(parameter.scalar_type())) {
            throw ModelError("RT-M8",
                             detail::concat("a parameter is of type ", parameter.scalar_type(),
                                            ", which a fused step cannot update; use the plain "
                                            "optimizer"));
        }
        if (free == nullptr) {
            free = &batches_.emplace_back(
                detail::FusedBatch{parameter.scalar_type(), parameter.device(), step, {}, {}, {}});
        }
        free->type = parameter.scalar_type();
        free->device = parameter.device();
        free->step = step;
        return *free;
    }

    detail::NodeStep node_;
    bool together_ = false; ///< the ranks of the node make the current step
    std::vector<detail::FusedBatch> batches_;
    std::vector<std::pair<at::Tensor, at::Tensor>> dense_copies_; ///< of scattered parameters
    std::shared_ptr<int> recorded_ = std::make_shared<int>();     ///< replaced: graphs are stale
};

} // namespace rtrain
