// SPDX-License-Identifier: Apache-2.0
/// @file
/// Notifies the reducer of a parameter's gradients: a hook on the tensor itself.
///
/// Autograd's node that accumulates a gradient is replaced when a tensor gets other data
/// (torch::load, set_data, Module::to), and hooks of the node are lost with it. Those of the tensor
/// stay for as long as the tensor lives.
#pragma once

#include <rtrain/base/error.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::detail {

class AnyBackend;

/// Receives gradients, parameter by parameter, while backward runs.
class GradientListener {
public:
    /// The ranks that all have the same gradients now, so that a step of one is that of all.
    struct SameGradients {
        AnyBackend* ranks = nullptr;                      ///< null: this rank may differ
        std::optional<bool> step_together = std::nullopt; ///< see DataParallelOptions
    };
    [[nodiscard]] virtual SameGradients same_gradients() const { return {}; }
    /// Called when `parameter.grad()` holds backward's gradient; it may be undefined, when a custom
    /// function has returned no gradient.
    virtual void gradient_ready(std::size_t parameter) = 0;

protected:
    GradientListener() = default;
    GradientListener(const GradientListener&) = default;
    GradientListener& operator=(const GradientListener&) = default;
    ~GradientListener() = default;
};

/// A hook on one parameter while this object lives. It also calls the hook that was set before.
class ParameterHook {
public:
    /// `listener` may be null: the parameter then only counts as prepared.
    ParameterHook(at::Tensor parameter, std::size_t number, GradientListener* listener)
        : parameter_(std::move(parameter)),
          link_(std::make_shared<Link>(Link{listener, number, true})) {
        namespace impl = torch::autograd::impl;
        auto* const meta = impl::materialize_autograd_meta(parameter_);
        meta->post_acc_grad_hooks_ =
            std::make_unique<AfterAccumulation>(link_, std::move(meta->post_acc_grad_hooks_));
    }
    ParameterHook(ParameterHook&&) noexcept = default;
    ParameterHook& operator=(ParameterHook&&) = delete;
    ~ParameterHook() {
        if (link_ == nullptr) { // moved from
            return;
        }
        link_->living = false;
        auto* const meta = torch::autograd::impl::get_autograd_meta(parameter_);
        auto& top = meta->post_acc_grad_hooks_; // others may be above ours, which then stays, idle
        for (auto* hook = ours(top); hook != nullptr && !hook->link->living; hook = ours(top)) {
            top = std::move(hook->below);
        }
    }

    /// The number of living ParameterHooks on a tensor.
    [[nodiscard]] static int count(const at::Tensor& tensor) {
        int living = 0;
        const auto* const meta = torch::autograd::impl::get_autograd_meta(tensor);
        for (const auto* hook = meta == nullptr ? nullptr : ours(meta->post_acc_grad_hooks_);
             hook != nullptr; hook = ours(hook->below)) {
            living += hook->link->living ? 1 : 0;
        }
        return living;
    }

    /// The listener of a tensor's gradients, owned by its hook; null without one.
    [[nodiscard]] static std::shared_ptr<const GradientListener>
    listener(const at::Tensor& tensor) {
        const auto* const meta = torch::autograd::impl::get_autograd_meta(tensor);
        const auto* hook = meta == nullptr ? nullptr : ours(meta->post_acc_grad_hooks_);
        while (hook != nullptr && !hook->link->living) {
            hook = ours(hook->below);
        }
        return hook == nullptr
                   ? nullptr
                   : std::shared_ptr<const GradientListener>(hook->link, hook->link->listener);
    }

    /// True if gradients still reach this hook; false when another hook has replaced it.
    [[nodiscard]] bool is_connected() const noexcept { return link_->connected; }

private:
    /// Shared by this object and its hook, either of which may be destroyed first.
    struct Link {
        GradientListener* listener = nullptr;
        std::size_t number = 0;
        bool living = true;
        bool connected = true;
    };

    struct AfterAccumulation final : torch::autograd::PostAccumulateGradHook {
        AfterAccumulation(std::shared_ptr<Link> to, std::unique_ptr<PostAccumulateGradHook> before)
            : link(std::move(to)), below(std::move(before)) {}
        ~AfterAccumulation() override { link->connected = false; }
        AfterAccumulation(const AfterAccumulation&) = delete;
        AfterAccumulation& operator=(const AfterAccumulation&) = delete;
        void operator()(const at::Tensor& parameter) override {
            if (below) {
                (*below)(parameter);
            }
            if (link->living && link->listener != nullptr) {
                link->listener->gradient_ready(link->number);
            }
        }
        std::shared_ptr<Link> link;
        std::unique_ptr<PostAccumulateGradHook> below;
    };

    [[nodiscard]] static AfterAccumulation*
    ours(const std::unique_ptr<torch::autograd::PostAccumulateGradHook>& hook) {
        return dynamic_cast<AfterAccumulation*>(hook.get());
    }

    at::Tensor parameter_;
    std::shared_ptr<Link> link_;
};

/// Throws ModelError [RT-M5] for a trainable parameter that is part of two prepared models.
inline void require_sole(const std::string& name, const at::Tensor& parameter) {
    if (parameter.requires_grad() && ParameterHook::count(parameter) > 1) {
        throw ModelError(
            "RT-M5", concat("parameter \"", name,
                            "\" is prepared already, and its gradient would be averaged twice; use "
                            "the handle that the first prepare() returned, and prepare models that "
                            "share parameters as one module that holds them"));
    }
}

} // namespace rtrain::detail
