// SPDX-License-Identifier: Apache-2.0
/// @file
/// The base of prepared optimizers: an `O` that holds this rank's parts of sharded models.
#pragma once

#include <rtrain/model/optimizer/shard_step.hpp>
#include <rtrain/state/optimizer_parts.hpp>
#include <rtrain/state/optimizer_state.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <typeinfo>
#include <utility>

namespace rtrain::detail {

template <class O>
class ShardedOptimizerBase : public O,
                             public checkpoint::HoldsParts,
                             public checkpoint::LoadListener {
public:
    [[nodiscard]] const checkpoint::PartOf* part_of(const at::Tensor& parameter) const override {
        return parts_.part_of(parameter);
    }
    [[nodiscard]] at::Tensor whole_of(const at::Tensor& parameter) const override {
        return parts_.whole_of(parameter);
    }
    [[nodiscard]] const std::type_info& prepared_class() const override { return typeid(O); }
    void loaded(const at::Tensor& parameter) override { parts_.settle(*this, parameter); }
    /// Like the optimizer's own. With level Shard::optimizer, call it through this type: torch's
    /// base function is not virtual, and leaves what passes under no_sync() have summed.
    void zero_grad(bool set_to_none = true) {
        O::zero_grad(set_to_none);
        parts_.zero_gradients();
    }
    /// True if it steps parts of a sharded model's parameters.
    [[nodiscard]] bool holds_parts() const noexcept { return parts_.any(); }
    /// See ShardedOptions.
    [[nodiscard]] bool steps_in_backward() const { return parts_.steps_in_backward(); }
    /// For GradScaler: true if `here` is true on a rank that has other parts of these parameters.
    [[nodiscard]] bool on_any_rank(bool here) const { return parts_.on_any_rank(here); }

protected:
    ShardedOptimizerBase(O&& optimizer, const SharedModels& models)
        : O(std::move(optimizer)), parts_(*this, models) {
        connect();
    }
    ShardedOptimizerBase(ShardedOptimizerBase&& other)
        : O(std::move(static_cast<O&>(other))), parts_(std::move(other.parts_)) {
        connect();
    }
    ~ShardedOptimizerBase() override = default;

    /// Steps the parameters of this optimizer's groups.
    virtual void step_now() = 0;
    /// Steps this rank's parts, and other parameters, after the closure.
    at::Tensor step_parts(const typename O::LossClosure& closure) {
        at::Tensor loss;
        if (closure) {
            const at::AutoGradMode with_gradients(true);
            loss = closure();
        }
        parts_.begin_step(*this);
        step_all();
        parts_.end_step();
        return loss;
    }

    ShardStep parts_;

private:
    void connect() {
        parts_.connect([this] { step_all(); });
    }
    void step_all() {
        parts_.run(*this, [this] { step_now(); });
    }
};

} // namespace rtrain::detail
