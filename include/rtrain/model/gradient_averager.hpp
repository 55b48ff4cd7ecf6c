// SPDX-License-Identifier: Apache-2.0
/// @file
/// Averages gradients over ranks while backward runs: the engine under `worker.prepare(model)`.
///
/// A hook behind each parameter's gradient accumulation copies gradient / size into the parameter's
/// place in a flat bucket (buckets.hpp). A full bucket is reduced at once, in the order of buckets
/// so that all ranks communicate alike (bucket_reduction.hpp). When backward ends, the engine's
/// final callback waits for what is still under way.
///
/// The model/ room holds what prepare(model) returns. It may include backend/, checkpoint/state_io,
/// comm/shared_writer, comm/finite, rank_status.hpp, preemption.hpp, error.hpp and torch; the
/// worker includes it.
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/error.hpp>
#include <rtrain/model/bucket_reduction.hpp>
#include <rtrain/model/buckets.hpp>
#include <rtrain/model/finite.hpp>
#include <rtrain/model/gradient_writer.hpp>
#include <rtrain/model/hooks/select.hpp>
#include <rtrain/model/options.hpp>
#include <rtrain/model/tree_sum.hpp>
#include <rtrain/preemption.hpp>
#include <rtrain/rank_status.hpp>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

template <Backend B>
class GradientAverager {
public:
    /// `parameters`: distinct, in the same order, shapes and types on all ranks. `backend` outlives
    /// this object. Collective.
    GradientAverager(B& backend, std::vector<NamedParameter> parameters,
                     const DataParallelOptions& options)
        : backend_(backend), options_(options), parameters_(std::move(parameters)),
          by_tree_(options.reduction_order == ReductionOrder::micro_batches),
          places_(parameters_.size()), seen_(parameters_.size(), false),
          used_(parameters_.size(), false) {
        lay_out_buckets();
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[i].tensor);
            using Variables = std::vector<at::Tensor>;
            const auto key =
                accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
                    [this, i](const Variables& outputs, const Variables& /*inputs*/) {
                        gradient_ready(i);
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

    /// The memory of all gradients, in few tensors: a bucket where all of its gradients lie in it.
    [[nodiscard]] std::vector<at::Tensor> gradients() const {
        std::vector<at::Tensor> memory;
        for (const Bucket& bucket : buckets_) {
            const auto lies_in_it = [&](std::size_t i) {
                const at::Tensor& gradient = parameters_[i].tensor.grad();
                return gradient.defined() && !gradient.is_sparse() &&
                       gradient.const_data_ptr() == places_[i].view.const_data_ptr();
            };
            if (std::all_of(bucket.parameters.begin(), bucket.parameters.end(), lies_in_it)) {
                memory.push_back(bucket.memory);
                continue;
            }
            for (const std::size_t i : bucket.parameters) {
                if (const at::Tensor& gradient = parameters_[i].tensor.grad(); gradient.defined()) {
                    memory.push_back(gradient);
                }
            }
        }
        return memory;
    }

private:
    struct Bucket {
        at::Tensor memory;                   ///< one dimension, one type
        at::Tensor scale;                    ///< what a gradient is multiplied by on its way in
        std::vector<std::size_t> parameters; ///< those that lie in it
        std::size_t missing = 0;             ///< gradients that this backward has not brought yet
        std::unique_ptr<detail::BucketReduction> reduction;
        detail::TreeReduction<B>* tree = nullptr; ///< `reduction`, when it is one
    };

    struct Place {
        std::size_t bucket = 0;
        at::Tensor view; ///< shape and strides of the parameter, memory of the bucket
    };

    void lay_out_buckets() {
        for (const auto& plan : detail::plan_buckets(parameters_, options_)) {
            Bucket bucket;
            if (by_tree_) {
                bucket.memory = detail::make_bucket(backend_, plan.elements, plan.type);
                auto tree = std::make_unique<detail::TreeReduction<B>>(backend_, bucket.memory);
                bucket.tree = tree.get();
                bucket.reduction = std::move(tree);
            } else {
                auto hooked = detail::make_hooked_bucket(backend_, plan, parameters_, options_,
                                                         buckets_.size());
                bucket.memory = std::move(hooked.memory);
                bucket.reduction = std::move(hooked.reduction);
            }
            bucket.scale = scale_for(bucket.memory.scalar_type());
            for (const auto& [index, offset] : plan.members) {
                places_[index] = {buckets_.size(),
                                  detail::alias(bucket.memory, offset, parameters_[index].tensor)};
                bucket.parameters.push_back(index);
            }
            buckets_.push_back(std::move(bucket));
        }
    }

    /// Of the type that multiplying needs, so that no step converts it; kernels for types of two
    /// bytes compute in float32. A tree divides at its root.
    [[nodiscard]] at::Tensor scale_for(at::ScalarType type) const {
        return at::scalar_tensor(by_tree_ ? 1.0 : 1.0 / backend_.size(),
                                 c10::isReducedFloatingType(type) ? at::kFloat : type);
    }

    void gradient_ready(std::size_t index) {
        used_[index] = true;
        if (!sync_ && !by_tree_) {
            return;
        }
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
        if (sync_) {
            reduce_full_buckets();
        }
    }

    void begin_backward() {
        std::fill(seen_.begin(), seen_.end(), false);
        for (Bucket& bucket : buckets_) {
            bucket.missing = bucket.parameters.size();
        }
        next_bucket_ = 0;
        torch::autograd::Engine::get_default_engine().queue_callback(
            [this, sync = sync_] { sync ? end_backward() : end_local_backward(); });
    }

    /// Moves a gradient into its bucket, divided by the number of ranks: now, while it is in cache.
    void take_gradient(std::size_t index) {
        const torch::NoGradGuard no_grad;
        at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
        auto& [number, view] = places_[index];
        Bucket& bucket = buckets_[number];
        if (gradient.is_sparse()) {
            gradient = gradient.to_dense();
        }
        writer_.scale_into(view, gradient, bucket.scale);
        if (!sync_) {
            gradient.reset(); // the next pass begins from nothing
        } else if (options_.gradient_as_bucket_view) {
            gradient = view;
        }
        --bucket.missing;
    }

    /// Fills the place of a parameter that this pass has not used: with what earlier passes have
    /// accumulated, or zeros.
    void take_unused(std::size_t index) {
        at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
        if (gradient.defined()) {
            const at::Tensor kept = gradient;
            take_gradient(index);
            used_[index] = used_[index] || !sync_;
            if (sync_) {
                gradient = kept; // until it is known whether a rank has used it
            }
        } else {
            places_[index].view.zero_();
            --buckets_[places_[index].bucket].missing;
        }
    }

    void reduce_full_buckets() {
        for (std::size_t i = 0; i < next_bucket_; ++i) {
            buckets_[i].reduction->poll();
        }
        while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0) {
            Bucket& bucket = buckets_[next_bucket_++];
            const torch::NoGradGuard no_grad;
            bucket.reduction->start();
            bucket.reduction->poll();
        }
    }

    void end_backward() {
        const torch::NoGradGuard no_grad;
        if (std::find(seen_.begin(), seen_.end(), false) != seen_.end()) {
            if (!options_.find_unused_parameters) {
                throw_unused();
            }
            take_all_unused();
            reduce_full_buckets();
        }
        if (options_.find_unused_parameters) {
            exchange_used();
        }
        for (Bucket& bucket : buckets_) {
            bucket.reduction->wait();
        }
        ++averaged_passes_;
        const auto bad = options_.check_gradients ? first_not_finite() : std::nullopt;
        hand_out_gradients();
        if (bad) {
            throw_not_finite(*bad);
        }
        RankStatus::current().steps.fetch_add(1, std::memory_order_relaxed);
        RankStatus::current().advance();
        detail::vote_on_preemption(backend_);
    }

    /// Under no_sync(), with a tree: this pass's gradients are a leaf of it.
    void end_local_backward() {
        const torch::NoGradGuard no_grad;
        take_all_unused();
        for (Bucket& bucket : buckets_) {
            bucket.tree->keep();
        }
    }

    void take_all_unused() {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (!seen_[i]) {
                take_unused(i);
            }
        }
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

    /// Leaves in used_ the parameters that some rank has used.
    void exchange_used() {
        at::Tensor used = at::empty({static_cast<std::int64_t>(used_.size())}, at::kInt);
        int* const flags = used.mutable_data_ptr<int>();
        std::copy(used_.begin(), used_.end(), flags);
        backend_.all_reduce(used, ReduceOp::max);
        std::copy(flags, flags + used_.size(), used_.begin());
    }

    /// The first parameter that gets a gradient with an infinity or NaN.
    [[nodiscard]] std::optional<std::size_t> first_not_finite() const {
        const auto is_finite = [](const Bucket& bucket) {
            const auto seen = bucket.reduction->finite();
            return seen ? *seen : detail::all_finite(bucket.memory);
        };
        if (std::all_of(buckets_.begin(), buckets_.end(), is_finite)) {
            return std::nullopt;
        }
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (used_[i] && !detail::all_finite(places_[i].view)) {
                return i;
            }
        }
        return std::nullopt;
    }

    [[noreturn]] void throw_not_finite(std::size_t index) const {
        const bool is_nan = places_[index].view.isnan().any().template item<bool>();
        throw ModelError(
            "RT-M21",
            detail::concat("the averaged gradient of parameter \"", parameters_[index].name,
                           "\" holds ", is_nan ? "NaN" : "an infinity", " after backward pass ",
                           averaged_passes_,
                           " since prepare(); no optimizer has seen it. Look at the loss and at "
                           "the batch of this step, lower the learning rate or clip gradients; "
                           "with a GradScaler, leave check_gradients out"));
    }

    void hand_out_gradients() {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
            const at::Tensor& view = places_[i].view;
            if (!used_[i]) {
                continue; // no rank used it: the gradient stays what it was
            }
            used_[i] = false;
            if (options_.gradient_as_bucket_view) {
                gradient = view;
            } else if (gradient.defined()) {
                gradient.copy_(view);
            } else {
                gradient = view.clone();
            }
        }
    }

    B& backend_;
    DataParallelOptions options_;
    std::vector<NamedParameter> parameters_;
    bool by_tree_;
    std::vector<Place> places_; ///< by parameter
    std::vector<Bucket> buckets_;
    std::vector<bool> seen_; ///< by parameter: its hook ran in this backward
    std::vector<bool> used_; ///< by parameter: its hook ran since gradients were averaged last
    using Accumulator =
        decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
    std::vector<std::pair<Accumulator, std::uintptr_t>> hooks_;
    detail::GradientWriter writer_;
    std::size_t next_bucket_ = 0; ///< the first that is not being reduced
    int pass_ = -1;               ///< the backward pass under way, or the last
    std::int64_t averaged_passes_ = 0;
    bool sync_ = true;
};

} // namespace rtrain
