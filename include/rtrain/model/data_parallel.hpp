// SPDX-License-Identifier: Apache-2.0
/// @file
/// The handle that `worker.prepare(model)` returns.
#pragma once

#include <rtrain/model/autocast.hpp>
#include <rtrain/model/clip_gradients.hpp>
#include <rtrain/model/gradient_averager.hpp>
#include <rtrain/model/join.hpp>
#include <rtrain/model/options.hpp>
#include <rtrain/model/parameter_hook.hpp>
#include <rtrain/model/sync_batch_norm.hpp>
#include <rtrain/model/synchronize.hpp>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain {

namespace detail {

/// A prepared model as the worker and join() see it, without its type.
class PreparedModel : public Joinable {
public:
    /// Nobody can train it any more.
    [[nodiscard]] virtual bool is_gone() const = 0;
    /// *Collective.* Throws ModelError [RT-M23, RT-M25] unless all ranks train the same model, the
    /// one that was prepared. Under no_sync() ranks may differ.
    virtual void check_parameters() = 0;
    /// What its hook remembers between passes. Saving is *collective*.
    virtual void save_hook(StateWriter out, bool by_rows) = 0;
    virtual void load_hook(const StateReader& in) = 0;
};

/// The ranks of `group` as a backend; the backend itself without a group. Throws ConfigError
/// [RT-C28] where backends of this type have no groups.
template <Backend B>
[[nodiscard]] std::shared_ptr<B> backend_of(std::shared_ptr<B> backend,
                                            const std::shared_ptr<comm::Communicator>& group) {
    if (group == nullptr) {
        return backend;
    }
    if constexpr (requires {
                      { backend->over(group) } -> std::same_as<B>;
                  }) {
        return std::make_shared<B>(backend->over(group));
    } else {
        throw ConfigError("RT-C28", "a model was to be prepared for a group of ranks, but this "
                                    "backend has no groups; use backend::Mpi, or give it `B "
                                    "over(std::shared_ptr<comm::Communicator>)`");
    }
}

} // namespace detail

/// A model whose gradients are averaged over ranks. Used like the model itself: call it, or reach
/// its members with `->`. Copies share the model. Gradients are averaged for as long as a copy
/// lives; a worker keeps one for as long as the model lives.
///
/// Calling the handle (not `model->forward()`) also gives buffers rank 0's values, when
/// `broadcast_buffers` is on and the model is in training mode.
template <std::derived_from<torch::nn::Module> M, Backend B>
class DataParallel {
public:
    /// Collective; the model must be the same on all ranks and takes over rank 0's values. Throws
    /// ModelError [RT-M1, RT-M2, RT-M5] and ConfigError [RT-C11, RT-C12, RT-C27, RT-C28].
    DataParallel(std::shared_ptr<B> backend, std::shared_ptr<M> module,
                 const DataParallelOptions& options)
        : module_(std::move(module)), shared_(std::make_shared<Shared>()) {
        shared_->backend = detail::backend_of(std::move(backend), options.group);
        shared_->options = options;
        shared_->module = module_;
        detail::check_model(*shared_->backend, *module_, options);
        shared_->batch_norms = detail::connect_batch_norms(shared_->backend, *module_);
        const bool alone = shared_->backend->size() == 1;
        if (alone && options.reduction_order == ReductionOrder::ranks && !options.check_gradients) {
            shared_->mark_prepared(); // one rank runs the bare model
            return;
        }
        if (!alone) {
            std::vector<at::Tensor> values = shared_values();
            detail::broadcast_coalesced(*shared_->backend, std::move(values));
        }
        DataParallelOptions averaging = options;
        if (alone && options.reduction_order == ReductionOrder::ranks) {
            averaging.hook = hook::None{}; // it is there to check what the bare model does
            averaging.find_unused_parameters = true;
        }
        shared_->averager =
            std::make_unique<GradientAverager<B>>(*shared_->backend, module_, averaging);
    }

    /// Runs the model's forward. Throws ModelError [RT-M23] when the model is not the one that was
    /// prepared: gradients of other parameters would not be averaged.
    template <class... Arguments>
    decltype(auto) operator()(Arguments&&... arguments) {
        if (shared_->averager && at::GradMode::is_enabled()) {
            shared_->averager->require_unchanged();
        }
        synchronize_buffers();
        return detail::run_forward(shared_->options.autocast, *module_, [&]() -> decltype(auto) {
            return module_->forward(std::forward<Arguments>(arguments)...);
        });
    }

    [[nodiscard]] M* operator->() const noexcept { return module_.get(); }
    [[nodiscard]] M& operator*() const noexcept { return *module_; }
    [[nodiscard]] const std::shared_ptr<M>& ptr() const noexcept { return module_; }

    /// What it was prepared with.
    [[nodiscard]] const DataParallelOptions& options() const noexcept { return shared_->options; }

    /// While it lives, backward leaves gradients on this rank: for gradient accumulation, all
    /// passes but the last run under it.
    class NoSync {
    public:
        NoSync(const NoSync&) = delete;
        NoSync& operator=(const NoSync&) = delete;
        ~NoSync() {
            if (averager_ != nullptr) {
                averager_->set_sync(before_);
            }
        }

    private:
        friend class DataParallel;
        explicit NoSync(GradientAverager<B>* averager)
            : averager_(averager), before_(averager == nullptr || averager->sync()) {
            if (averager_ != nullptr) {
                averager_->set_sync(false);
            }
        }
        GradientAverager<B>* averager_;
        bool before_;
    };
    [[nodiscard]] NoSync no_sync() { return NoSync(shared_->averager.get()); }

    /// Clips gradients by the norm of all of them together: after backward, when they are averaged,
    /// and before the optimizer's step. Multiplies them by max_norm / norm where that is less than
    /// 1, and returns the norm there was, which is the same on all ranks. As torch's
    /// clip_grad_norm_ on the model's parameters, but a pass over each bucket instead of several
    /// operations for each parameter. Sparse gradients of a run on one rank are clipped, too.
    ///
    /// `norm_type`: p of the p-norm, above 0; infinity takes the largest element. Throws ModelError
    /// [RT-M6] for an infinite or undefined norm with `error_if_nonfinite`, else ConfigError
    /// [RT-C11].
    double clip_grad_norm_(double max_norm, double norm_type = 2, bool error_if_nonfinite = false) {
        const torch::NoGradGuard no_grad;
        return detail::clip(shared_->averager ? shared_->averager->gradients() : own_gradients(),
                            max_norm, norm_type, error_if_nonfinite);
    }

    /// Overwrites parameters and floating-point buffers with their mean over ranks. Collective.
    /// For ranks that have trained alone (LocalSgd does it).
    void average_parameters() {
        if (shared_->backend->size() == 1) {
            return;
        }
        std::vector<at::Tensor> values = shared_values();
        std::erase_if(values, [](const at::Tensor& value) { return !value.is_floating_point(); });
        detail::average_coalesced(*shared_->backend, std::move(values));
    }

    /// What the worker keeps.
    [[nodiscard]] std::shared_ptr<detail::PreparedModel> prepared() const noexcept {
        return shared_;
    }

    /// Buckets in use; 0 on one rank, unless gradients are added up by micro-batch or
    /// checked.
    [[nodiscard]] std::size_t bucket_count() const noexcept {
        return shared_->averager ? shared_->averager->bucket_count() : 0;
    }

private:
    struct Shared : detail::PreparedModel {
        [[nodiscard]] bool is_gone() const override { return module.expired(); }
        void check_parameters() override {
            if (averager && averager->sync()) {
                averager->check_parameters();
            }
        }
        /// For one rank, where nothing is averaged: the same mistake is the same error.
        void mark_prepared() {
            for (const auto& [name, parameter] :
                 detail::distinct_parameters(*module.lock(), options.ignore)) {
                marks.emplace_back(parameter, marks.size(), nullptr);
                detail::require_sole(name, parameter);
            }
        }
        void save_hook(StateWriter out, bool by_rows) override {
            if (averager) {
                RankStateWriter writer(std::move(out), averager->ranks(), by_rows);
                averager->save_hooks(writer);
            }
        }
        void load_hook(const StateReader& in) override {
            if (averager) {
                averager->load_hooks(in);
            }
        }

        [[nodiscard]] HookRanks* ranks() override {
            return averager && backend->size() > 1 ? &averager->ranks() : nullptr;
        }
        void set_join(detail::JoinedRanks* joined, std::size_t number) override {
            const bool rounds = std::holds_alternative<hook::PowerSgd>(options.hook) ||
                                std::holds_alternative<hook::Custom>(options.hook);
            if (joined != nullptr &&
                (rounds || options.reduction_order == ReductionOrder::micro_batches)) {
                throw ConfigError("RT-C12", "join() divides gradients by the number of ranks that "
                                            "are left, which the hooks PowerSgd and Custom and "
                                            "reduction_order micro_batches do not; leave out one "
                                            "of the two");
            }
            averager->set_join(joined, number);
        }
        void shadow(const detail::JoinedRanks::Next& next) override {
            if (next.step == detail::JoinedRanks::Step::backward) {
                averager->shadow_pass(next.active);
            } else if (const auto held = module.lock()) {
                detail::broadcast_coalesced(*backend,
                                            detail::unversioned_buffers(*held, options.ignore),
                                            next.first_active);
            }
        }

        std::shared_ptr<B> backend;
        DataParallelOptions options;
        std::weak_ptr<M> module;
        c10::intrusive_ptr<detail::BatchNormRanks> batch_norms; ///< holds their connection
        std::unique_ptr<GradientAverager<B>> averager;
        std::vector<detail::ParameterHook> marks;
    };

    void synchronize_buffers() {
        if (shared_->backend->size() == 1 || !shared_->options.broadcast_buffers ||
            !module_->is_training() || !shared_->averager->sync()) {
            return;
        }
        auto buffers = detail::unversioned_buffers(*module_, shared_->options.ignore);
        if (buffers.empty()) {
            return;
        }
        int root = 0;
        if (auto* const joined = shared_->averager->joined(); joined != nullptr) {
            using Step = detail::JoinedRanks::Step;
            root = joined->announce(Step::buffers, shared_->averager->joined_as()).first_active;
        }
        detail::broadcast_coalesced(*shared_->backend, std::move(buffers), root);
    }

    /// Parameters and buffers that ranks have in common.
    [[nodiscard]] std::vector<at::Tensor> shared_values() const {
        std::vector<at::Tensor> values;
        for (const auto& [name, parameter] :
             detail::distinct_parameters(*module_, shared_->options.ignore)) {
            values.push_back(parameter);
        }
        for (const at::Tensor& buffer :
             detail::unversioned_buffers(*module_, shared_->options.ignore)) {
            values.push_back(buffer);
        }
        return values;
    }

    /// On one rank, where gradients are what backward made them.
    [[nodiscard]] std::vector<at::Tensor> own_gradients() const {
        std::vector<at::Tensor> gradients;
        for (const auto& [name, parameter] :
             detail::distinct_parameters(*module_, shared_->options.ignore)) {
            detail::add_gradient(gradients, parameter);
        }
        return gradients;
    }

    std::shared_ptr<M> module_;
    std::shared_ptr<Shared> shared_;
};

namespace detail {

/// The module behind what a user calls a model: a holder made by TORCH_MODULE, a shared pointer, or
/// a module by value.
template <class M>
requires std::derived_from<M, torch::nn::Module>
[[nodiscard]] std::shared_ptr<M> module_of(std::shared_ptr<M> module) {
    return module;
}
template <class Contained>
[[nodiscard]] std::shared_ptr<Contained>
module_of(const torch::nn::ModuleHolder<Contained>& holder) {
    return holder.ptr();
}
template <std::derived_from<torch::nn::Module> M>
[[nodiscard]] std::shared_ptr<M> module_of(M module) {
    return std::make_shared<M>(std::move(module));
}

} // namespace detail
} // namespace rtrain
