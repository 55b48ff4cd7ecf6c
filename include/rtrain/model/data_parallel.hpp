// SPDX-License-Identifier: Apache-2.0
/// @file
/// The handle that `worker.prepare(model)` returns.
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/backend/the_backend.hpp>
#include <rtrain/model/ddp/engine_for.hpp>
#include <rtrain/model/ddp/prepared_call.hpp>
#include <rtrain/model/ddp/prepared_model.hpp>
#include <rtrain/model/options/options.hpp>

#include <c10/util/typeid.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize/archive.h>

#include <any>
#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace rtrain {

/// A model whose gradients are averaged over ranks. Used like the model itself: call it, or reach
/// its members with `->`. Copies share the model. Gradients are averaged for as long as a copy
/// lives; a worker keeps one for as long as the model lives.
///
/// Calling the handle also gives buffers rank 0's values, when `broadcast_buffers` is on and the
/// model is in training mode, and runs forward under autocast. With `model->forward()`, and in
/// functions that take the model, buffers get these values at the end of backward, and autocast is
/// ModelError [RT-M61] there.
template <std::derived_from<torch::nn::Module> M, Backend B>
class DataParallel {
public:
    /// Collective; the model must be the same on all ranks and gets rank 0's values. Throws
    /// ModelError [RT-M1, RT-M2, RT-M5] and ConfigError [RT-C11, RT-C12, RT-C27, RT-C28].
    DataParallel(std::shared_ptr<B> backend, std::shared_ptr<M> module,
                 const DataParallelOptions& options)
        : DataParallel(std::make_shared<detail::TheBackend<B>>(std::move(backend)),
                       std::move(module), options) {}
    /// Used by the worker.
    DataParallel(std::shared_ptr<detail::AnyBackend> backend, std::shared_ptr<M> module,
                 const DataParallelOptions& options)
        : module_(std::move(module)),
          prepared_(detail::prepare_model(std::move(backend), module_, options)) {
        connect();
    }

    /// Runs the model's forward. Throws ModelError [RT-M23] when the model is not the one that was
    /// prepared: gradients of other parameters would not be averaged.
    template <class... Arguments>
    decltype(auto) operator()(Arguments&&... arguments) {
        return call([&]() -> decltype(auto) {
            return module_->forward(std::forward<Arguments>(arguments)...);
        });
    }

    /// Runs `function`, which uses the model, as a call of the handle runs forward: with rank 0's
    /// buffers, under autocast, and timed. Backward starts from tensors that it returns. For
    /// methods other than forward.
    ///
    /// @code
    /// auto loss = model.call([&] { return model->loss_of(batch); });
    /// @endcode
    template <std::invocable Function>
    decltype(auto) call(Function&& function) {
        return detail::call_prepared(*prepared_, *module_, std::forward<Function>(function),
                                     [this](auto& output) { end_forward(output); });
    }

    [[nodiscard]] M* operator->() const noexcept { return module_.get(); }
    [[nodiscard]] M& operator*() const noexcept { return *module_; }
    /// For functions that take the module, or a holder of it (TORCH_MODULE).
    operator M&() const noexcept { return *module_; } // NOLINT(google-explicit-constructor)
    template <std::derived_from<torch::nn::ModuleHolder<M>> Holder>
    operator Holder&() const { // NOLINT(google-explicit-constructor)
        if (std::any_cast<Holder>(holder_.get()) == nullptr) {
            holder_->template emplace<Holder>(module_);
        }
        return *std::any_cast<Holder>(holder_.get());
    }
    /// The module itself.
    [[nodiscard]] const std::shared_ptr<M>& ptr() const noexcept { return module_; }

    /// `torch::save(model, path)` writes the module.
    friend torch::serialize::OutputArchive& operator<<(torch::serialize::OutputArchive& archive,
                                                       const DataParallel& model) {
        return archive << model.module_;
    }
    /// `torch::load(model, path)` reads into the module, on each rank that calls it.
    friend torch::serialize::InputArchive& operator>>(torch::serialize::InputArchive& archive,
                                                      DataParallel& model) {
        return archive >> model.module_;
    }

    /// The options that the model was prepared with.
    [[nodiscard]] const DataParallelOptions& options() const noexcept {
        return prepared_->options();
    }

    /// While it lives, backward leaves gradients on this rank: for gradient accumulation, all
    /// passes but the last run under it.
    class NoSync {
    public:
        NoSync(const NoSync&) = delete;
        NoSync& operator=(const NoSync&) = delete;
        ~NoSync() { prepared_->set_sync(before_); }

    private:
        friend class DataParallel;
        explicit NoSync(std::shared_ptr<detail::PreparedModel> prepared)
            : prepared_(std::move(prepared)), before_(prepared_->sync()) {
            prepared_->set_sync(false);
        }
        std::shared_ptr<detail::PreparedModel> prepared_;
        bool before_;
    };
    /// While it lives, backward() leaves gradients on this rank.
    [[nodiscard]] NoSync no_sync() { return NoSync(prepared_); }

    /// Clips gradients by their common norm; call it after backward, when they are averaged, and
    /// before the optimizer's step. Multiplies them by max_norm / norm where that is less than 1,
    /// and returns the norm before clipping, which is the same on all ranks. Equivalent to torch's
    /// clip_grad_norm_ on the model's parameters, but reads each bucket once instead of running
    /// several operations for each parameter. Also clips sparse gradients of a run on one rank. On
    /// a device the host waits for the norm, except in a captured step, where the norm is NaN.
    ///
    /// `norm_type`: p of the p-norm, above 0; infinity takes the largest element. Throws ModelError
    /// [RT-M6] for an infinite or undefined norm with `error_if_nonfinite`, else ConfigError
    /// [RT-C11].
    double clip_grad_norm_(double max_norm, double norm_type = 2, bool error_if_nonfinite = false) {
        return prepared_->clip(max_norm, norm_type, error_if_nonfinite);
    }

    /// Overwrites parameters and floating-point buffers with their mean over ranks. Collective.
    /// For ranks that have trained alone (LocalSgd does it).
    void average_parameters() { prepared_->average_parameters(); }

    /// The part that the worker keeps.
    [[nodiscard]] const std::shared_ptr<detail::PreparedModel>& prepared() const noexcept {
        return prepared_;
    }

    /// Buckets in use; 0 on one rank, unless gradients are added up by micro-batch or
    /// checked.
    [[nodiscard]] std::size_t bucket_count() const noexcept { return prepared_->bucket_count(); }

protected:
    /// For other engines.
    DataParallel(std::shared_ptr<M> module, std::shared_ptr<detail::PreparedModel> prepared)
        : module_(std::move(module)), prepared_(std::move(prepared)) {
        connect();
    }

private:
    /// For modules with other methods that run like a call of the handle.
    void connect() {
        if constexpr (requires { module_->set_prepared(prepared_); }) {
            module_->set_prepared(prepared_);
        }
    }
    template <class Output>
    void end_forward(Output& output) {
        bool has_tensors = false;
        detail::each_tensor(output, [&](const at::Tensor& part) {
            has_tensors = true;
            prepared_->end_forward(part);
        });
        if (!has_tensors) {
            prepared_->end_forward_without_tensors(c10::demangle_type<std::remove_cv_t<Output>>());
        }
    }

    std::shared_ptr<M> module_;
    std::shared_ptr<detail::PreparedModel> prepared_;
    std::shared_ptr<std::any> holder_ = std::make_shared<std::any>(); ///< of the module, on demand
};

/// Models whose ranks have a copy each.
template <>
struct EngineFor<DataParallelOptions> {
    /// Gives the handle of a module whose gradients are averaged over ranks.
    template <class M, Backend B>
    static DataParallel<M, B> prepare(std::shared_ptr<detail::AnyBackend> backend,
                                      std::shared_ptr<M> module,
                                      const DataParallelOptions& options) {
        return {std::move(backend), std::move(module), options};
    }
};

namespace detail {

/// Returns the module of a user's model: a holder made by TORCH_MODULE, a shared pointer, or a
/// module by value.
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
