// SPDX-License-Identifier: Apache-2.0
/// @file
/// Averages gradients over ranks while backward runs: the engine under `worker.prepare(model)`.
///
/// Parameters are laid out in flat buckets, in reverse order of registration because backward
/// reaches the last layer first (PyTorch DDP, Li et al., VLDB 2020, section 3.2.3). A hook behind
/// each parameter's gradient accumulation copies gradient / size into the bucket; a full bucket is
/// reduced at once, in the order of buckets so that all ranks communicate alike. When backward
/// ends, the engine's final callback waits for what is still under way.
///
/// The model/ room holds what prepare(model) returns. It may include backend/, error.hpp and torch;
/// the worker includes it.
#pragma once

#include <rtrain/backend/reduction.hpp>
#include <rtrain/error.hpp>
#include <rtrain/model/options.hpp>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

/// A parameter and the name it has in its module.
struct NamedParameter {
    std::string name;
    at::Tensor tensor;
};

template <Backend B>
class GradientAverager {
public:
    /// `parameters`: distinct, in the same order, shapes and types on all ranks. `backend` outlives
    /// this object.
    GradientAverager(B& backend, std::vector<NamedParameter> parameters,
                     const DataParallelOptions& options)
        : backend_(backend), options_(options), parameters_(std::move(parameters)),
          places_(parameters_.size()), seen_(parameters_.size(), false) {
        lay_out_buckets();
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[i].tensor);
            using Variables = std::vector<at::Tensor>;
            const auto key =
                accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
                    [this, i](const Variables& outputs, const Variables& /*inputs*/) {
                        if (sync_) {
                            gradient_ready(i);
                        }
                        return outputs;
                    }));
            hooks_.emplace_back(std::move(accumulator), key);
        }
    }

    GradientAverager(const GradientAverager&) = delete;
    GradientAverager& operator=(const GradientAverager&) = delete;

    ~GradientAverager() {
        for (auto& [accumulator, key] : hooks_) {
            accumulator->del_post_hook(key);
        }
    }

    /// While false, backward accumulates gradients on this rank only.
    void set_sync(bool sync) { sync_ = sync; }
    [[nodiscard]] bool sync() const noexcept { return sync_; }

    [[nodiscard]] std::size_t bucket_count() const noexcept { return buckets_.size(); }

private:
    struct Bucket {
        at::Tensor memory; ///< one dimension, one type
        std::size_t parameters = 0;
        std::size_t missing = 0; ///< gradients that this backward has not brought yet
        detail::Reduction<B> reduction;
    };

    struct Place {
        std::size_t bucket = 0;
        at::Tensor view; ///< shape and strides of the parameter, memory of the bucket
    };

    void lay_out_buckets() {
        struct Plan {
            at::TensorOptions type;
            std::int64_t elements = 0;
            std::vector<std::pair<std::size_t, std::int64_t>> members; // parameter, offset
        };
        std::vector<Plan> plans;
        std::int64_t limit = options_.first_bucket_bytes;
        for (std::size_t i = parameters_.size(); i-- > 0;) {
            const at::Tensor& parameter = parameters_[i].tensor;
            const std::int64_t element_size = static_cast<std::int64_t>(parameter.element_size());
            const auto type = parameter.options().requires_grad(false);
            const bool fits = !plans.empty() && plans.back().type.dtype() == type.dtype() &&
                              plans.back().type.device() == type.device() &&
                              plans.back().elements * element_size < limit;
            if (!fits) {
                limit = plans.empty() ? options_.first_bucket_bytes : options_.bucket_bytes;
                plans.push_back({type, 0, {}});
            }
            plans.back().members.emplace_back(i, plans.back().elements);
            plans.back().elements += parameter.numel();
        }
        for (const Plan& plan : plans) {
            at::Tensor memory = detail::make_bucket(backend_, plan.elements, plan.type);
            auto reduction = detail::make_reduction(backend_, memory, ReduceOp::sum);
            for (const auto& [index, offset] : plan.members) {
                places_[index] = {buckets_.size(),
                                  alias(memory, offset, parameters_[index].tensor)};
            }
            buckets_.push_back({std::move(memory), plan.members.size(), 0, std::move(reduction)});
        }
    }

    /// A tensor of `like`'s shape over the bucket's memory. Not a view in autograd's eyes, so that
    /// zero_grad(), which detaches gradients in place, works on it.
    static at::Tensor alias(const at::Tensor& memory, std::int64_t offset, const at::Tensor& like) {
        auto* const data = memory.slice(0, offset).data_ptr();
        const auto strides =
            like.is_non_overlapping_and_dense()
                ? like.strides().vec()
                : at::empty_like(like, at::MemoryFormat::Contiguous).strides().vec();
        return at::from_blob(
            data, like.sizes(), strides, [memory](void* /*data*/) {}, memory.options());
    }

    void gradient_ready(std::size_t index) {
        // A pass that an exception cut short leaves no other trace than the number of the next.
        if (const int pass = torch::autograd::get_current_graph_task_id(); pass != pass_) {
            pass_ = pass;
            begin_backward();
        }
        if (seen_[index]) {
            throw ModelError("RT-M4",
                             detail::concat("the gradient of parameter \"", parameters_[index].name,
                                            "\" became ready twice in one backward pass; run "
                                            "passes that use it twice under no_sync()"));
        }
        seen_[index] = true;
        take_gradient(index);
        --buckets_[places_[index].bucket].missing;
        reduce_full_buckets();
    }

    void begin_backward() {
        std::fill(seen_.begin(), seen_.end(), false);
        for (Bucket& bucket : buckets_) {
            bucket.missing = bucket.parameters;
        }
        next_bucket_ = 0;
        torch::autograd::Engine::get_default_engine().queue_callback([this] { end_backward(); });
    }

    /// Moves a gradient into its bucket, divided by the number of ranks: now, while it is in cache.
    void take_gradient(std::size_t index) {
        const torch::NoGradGuard no_grad;
        at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
        at::Tensor& view = places_[index].view;
        const double scale = 1.0 / backend_.size();
        if (gradient.is_sparse()) {
            gradient = gradient.to_dense();
        }
        if (gradient.const_data_ptr() == view.const_data_ptr()) {
            view.mul_(scale);
        } else {
            at::mul_out(view, gradient, at::scalar_tensor(scale, view.options()));
        }
        if (options_.gradient_as_bucket_view) {
            gradient = view;
        }
    }

    void reduce_full_buckets() {
        for (std::size_t i = 0; i < next_bucket_; ++i) {
            buckets_[i].reduction.poll();
        }
        while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0) {
            Bucket& bucket = buckets_[next_bucket_++];
            bucket.reduction.start();
            bucket.reduction.poll();
        }
    }

    void end_backward() {
        const torch::NoGradGuard no_grad;
        if (std::find(seen_.begin(), seen_.end(), false) != seen_.end() &&
            !options_.find_unused_parameters) {
            throw_unused();
        }
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (!seen_[i]) {
                places_[i].view.zero_();
                --buckets_[places_[i].bucket].missing;
            }
        }
        reduce_full_buckets();
        const std::vector<bool> used_somewhere =
            options_.find_unused_parameters ? exchange_used() : seen_;
        for (Bucket& bucket : buckets_) {
            bucket.reduction.wait();
        }
        hand_out_gradients(used_somewhere);
    }

    [[noreturn]] void throw_unused() const {
        std::string names;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (!seen_[i]) {
                names += (names.empty() ? "\"" : ", \"") + parameters_[i].name + "\"";
            }
        }
        throw ModelError("RT-M3", detail::concat("backward brought no gradient for ", names,
                                                 " on rank ", backend_.rank(),
                                                 "; use these parameters in the loss, freeze them "
                                                 "before prepare(), or set "
                                                 "find_unused_parameters"));
    }

    /// Which parameters some rank has used.
    std::vector<bool> exchange_used() {
        at::Tensor used = at::zeros({static_cast<std::int64_t>(seen_.size())}, at::kInt);
        for (std::size_t i = 0; i < seen_.size(); ++i) {
            used[static_cast<std::int64_t>(i)] = seen_[i] ? 1 : 0;
        }
        backend_.all_reduce(used, ReduceOp::max);
        const int* const flags = used.const_data_ptr<int>();
        return std::vector<bool>(flags, flags + used.numel());
    }

    void hand_out_gradients(const std::vector<bool>& used_somewhere) {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
            if (!used_somewhere[i]) {
                continue; // no rank used it: the gradient stays what it was
            }
            if (options_.gradient_as_bucket_view) {
                gradient = places_[i].view;
            } else if (gradient.defined()) {
                gradient.copy_(places_[i].view);
            } else {
                gradient = places_[i].view.clone();
            }
        }
    }

    B& backend_;
    DataParallelOptions options_;
    std::vector<NamedParameter> parameters_;
    std::vector<Place> places_; ///< by parameter
    std::vector<Bucket> buckets_;
    std::vector<bool> seen_; ///< by parameter: its hook ran in this backward
    using Accumulator =
        decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
    std::vector<std::pair<Accumulator, std::uintptr_t>> hooks_;
    std::size_t next_bucket_ = 0; ///< the first that is not being reduced
    int pass_ = -1;               ///< the backward pass under way, or the last
    bool sync_ = true;
};

} // namespace rtrain
