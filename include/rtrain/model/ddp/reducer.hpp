// SPDX-License-Identifier: Apache-2.0
/// @file
/// Averages gradients over ranks while backward runs: the engine of `worker.prepare(model)`.
///
/// A hook on each parameter (parameter_hook.hpp) passes its gradient to a flat bucket
/// (buckets.hpp), which is reduced once it is full, in the same order on all ranks
/// (bucket_reduction.hpp). When backward ends (backward_pass.hpp), the reducer averages sparse
/// ones.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/model/ddp/backward_pass.hpp>
#include <rtrain/model/ddp/bad_gradient.hpp>
#include <rtrain/model/ddp/batch_weight.hpp>
#include <rtrain/model/ddp/clip_gradients.hpp>
#include <rtrain/model/ddp/gradient_store.hpp>
#include <rtrain/model/ddp/join.hpp>
#include <rtrain/model/ddp/preemption_vote.hpp>
#include <rtrain/model/options/options.hpp>
#include <rtrain/model/parameters/buckets.hpp>
#include <rtrain/model/parameters/gradient_errors.hpp>
#include <rtrain/model/parameters/model_guard.hpp>
#include <rtrain/model/parameters/parameter_check.hpp>
#include <rtrain/model/parameters/parameter_hook.hpp>
#include <rtrain/model/parameters/recording.hpp>
#include <rtrain/model/parameters/synchronize.hpp>
#include <rtrain/model/parameters/usage_tracker.hpp>
#include <rtrain/model/reduction/sparse_mean.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/status/step_clock.hpp>
#include <rtrain/process/status/user_call.hpp>

#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rtrain::detail {

class Reducer final : private GradientListener {
public:
    /// `model`'s parameters have the same order, shapes and types on all ranks. `backend` outlives
    /// this object. Collective. Throws ModelError [RT-M5] when another reducer has one of the
    /// trainable parameters.
    Reducer(AnyBackend& backend, const std::shared_ptr<torch::nn::Module>& model,
            const DataParallelOptions& options, const MakeStore& make_store)
        : backend_(backend), options_(options),
          parameters_(distinct_parameters(*model, options.ignore)),
          store_(make_store(parameters_, options_)), guard_(model, options.ignore),
          sparse_(parameters_.size(), false), use_(parameters_) {
        const bool by_tree = options.reduction_order == ReductionOrder::micro_batches;
        const auto sparse = parameters_with_sparse_gradients(*model);
        std::vector<bool> wanted(parameters_.size());
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            const at::Tensor& parameter = parameters_[i].tensor;
            hooks_.emplace_back(parameter, i, static_cast<GradientListener*>(this));
            sparse_[i] = !by_tree && sparse.contains(parameter.unsafeGetTensorImpl());
            wanted[i] = use_.trains(i) && !sparse_[i];
            require_sole(parameters_[i].name, parameter);
        }
        store_->allocate(std::move(wanted));
    }

    Reducer(const Reducer&) = delete;
    Reducer& operator=(const Reducer&) = delete;

    /// Called when a pass through the store begins, and when its gradients are averaged.
    struct PassHooks {
        std::function<void()> begin;
        std::function<void()> end; ///< not of passes that this rank only shadows
    };
    void set_pass_hooks(PassHooks hooks) { pass_hooks_ = std::move(hooks); }
    void enter_backward() { store_->enter_backward(); }
    /// Weights the next passes for the loop's current batch.
    void follow_batch() {
        weight_.follow(weight_applies());
        store_->divide_by(backend_.size() / weight_.value());
    }

    void set_sync(bool sync) { sync_ = sync; }
    [[nodiscard]] bool sync() const noexcept { return sync_; }

    [[nodiscard]] std::size_t bucket_count() const noexcept { return store_->size(); }
    [[nodiscard]] std::uint64_t next_pass() const noexcept {
        return static_cast<std::uint64_t>(averaged_passes_ + 1);
    }

    /// Throws ModelError [RT-M23] when gradients of the model as it is now would not be averaged.
    void require_unchanged() const {
        guard_.require_unchanged();
        require_connected(hooks_, parameters_);
    }

    /// *Collective.* Throws ModelError [RT-M23, RT-M25] unless the model is the one that was
    /// prepared, with the same parameters on all ranks. `later`: see PreparedModel.
    void check_parameters(checkpoint::Compared* later = nullptr) {
        require_unchanged();
        if (store_->has_copies_of_parameters()) {
            compare_parameters(backend_, parameters_, later);
        }
    }

    void save_hooks(RankStateWriter& out) const { store_->save(out); }
    void load_hooks(const StateReader& in) { store_->load(in); }
    void set_join(JoinedRanks* joined, std::size_t model) {
        joined_ = joined;
        joined_as_ = model;
        follow_batch();
    }
    [[nodiscard]] JoinedRanks* joined() const noexcept { return joined_; }
    [[nodiscard]] std::size_t joined_as() const noexcept { return joined_as_; }
    /// Takes part in a pass of `active` other ranks: gradients become those of the others.
    void shadow_pass(int active) {
        const torch::NoGradGuard no_grad;
        store_->divide_by(active);
        store_->begin(use_.training());
        syncs_ = true;
        shadows_ = true;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            use_.set_used(i, use_.trains(i) && !options_.find_unused_parameters);
            if (use_.trains(i) && !sparse_[i]) {
                store_->contribute_zeros(i);
            }
        }
        finish_pass();
        shadows_ = false;
    }

    /// The memory of all gradients, in few tensors.
    [[nodiscard]] std::vector<at::Tensor> gradients() const {
        std::vector<at::Tensor> memory = store_->gradients();
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (!store_->has_place(i)) { // sparse, or frozen with what it had
                add_gradient(memory, parameters_[i].tensor);
            }
        }
        return memory;
    }

private:
    [[nodiscard]] bool weight_applies() const {
        return options_.weight_by_rows && options_.group == nullptr && joined_ == nullptr;
    }

    [[nodiscard]] SameGradients same_gradients() const override {
        return {has_means_ && joined_ == nullptr ? &backend_ : nullptr, options_.step_together};
    }

    void gradient_ready(std::size_t index) override {
        has_means_ = false;
        if (pass_.consume_interruption()) { // gradients of that pass do not count
            use_.forget_used();
        }
        // An undefined gradient counts as zeros or, where parameters may be unused, as unused.
        const bool defined = parameters_[index].tensor.grad().defined();
        if (!defined && options_.find_unused_parameters) {
            return;
        }
        use_.set_used(index, true);
        if (mark_ready(index)) {
            defined ? take_gradient(index) : take_unused(index);
            reduce_full_buckets();
        } else if (defined) {
            weight_.accumulate();
            store_->accumulate(index);
        }
    }

    /// True if this gradient goes through the store.
    bool mark_ready(std::size_t index) {
        if (!sync_ && !store_->handles_no_sync()) {
            return false;
        }
        if (pass_.enter()) {
            begin_backward();
        }
        use_.mark_seen(index);
        return true;
    }

    void begin_backward() {
        const auto in = in_backward();
        pass_hooks_.begin();
        if (joined_ != nullptr) {
            using Step = JoinedRanks::Step;
            store_->divide_by(joined_->announce(Step::backward, joined_as_).active);
        }
        if (pass_.was_interrupted()) {
            settle_cut_pass();
        }
        require_unchanged();
        follow_requires_grad();
        use_.begin_pass();
        store_->begin(use_.training());
        syncs_ = sync_;
    }

    /// After an exception in backward, ranks continue only if all of them had one at the same
    /// place: otherwise gradients of two passes would be added up.
    void settle_cut_pass() {
        const std::size_t started = syncs_ ? store_->started() : 0;
        require_cut_alike(backend_, static_cast<std::int64_t>(started));
        if (syncs_) {
            store_->wait();
        }
        pass_.reset();
    }

    /// Gives places to parameters that have become trainable.
    void follow_requires_grad() {
        std::vector<bool> homeless(parameters_.size(), false);
        use_.follow_requires_grad(backend_, [&](std::size_t i) {
            if (use_.trains(i)) {
                require_sole(parameters_[i].name, parameters_[i].tensor);
                homeless[i] = !sparse_[i] && !store_->has_place(i);
            } else {
                leave_place(i);
            }
        });
        if (std::find(homeless.begin(), homeless.end(), true) != homeless.end()) {
            store_->allocate(std::move(homeless));
        }
    }

    /// Leaves a frozen parameter its own gradient.
    void leave_place(std::size_t index) {
        const torch::NoGradGuard no_grad;
        use_.set_used(index, false);
        store_->exclude(index);
    }

    /// Moves a gradient into its place.
    void take_gradient(std::size_t index) {
        if (sparse_[index]) {
            if (!syncs_) {
                weight_.accumulate();
            }
            return; // averaged when backward ends
        }
        const torch::NoGradGuard no_grad;
        at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
        if (gradient.is_sparse()) {
            gradient = gradient.to_dense();
        }
        store_->copy_in(index, syncs_);
    }

    /// Fills the place of a parameter that this pass has not used: with the gradient that earlier
    /// passes have accumulated, or zeros.
    void take_unused(std::size_t index) {
        if (sparse_[index]) {
            return;
        }
        at::Tensor& gradient = parameters_[index].tensor.mutable_grad();
        if (gradient.defined()) {
            const at::Tensor kept = gradient;
            gradient = kept.clone(); // means may be written into what the store takes
            take_gradient(index);
            use_.set_used(index, use_.is_used(index) || !syncs_);
            if (syncs_) {
                gradient = kept; // until it is known whether a rank has used it
            }
        } else {
            const torch::NoGradGuard no_grad;
            store_->contribute_zeros(index);
        }
    }

    [[nodiscard]] UserCall::In in_backward() const {
        return UserCall::In(UserCall::backward, next_pass());
    }
    void reduce_full_buckets() {
        if (syncs_ && store_->has_started_or_full()) { // checked after each gradient
            const auto in = in_backward();
            const torch::NoGradGuard no_grad;
            const StepClock::In waiting(ProcessContext::current().clock, StepPart::communication);
            store_->launch_ready();
        }
    }

    void end_backward() {
        const torch::NoGradGuard no_grad;
        if (!syncs_) {
            take_all_unused();
            store_->end_no_sync_pass();
            return;
        }
        if (!options_.find_unused_parameters) {
            use_.require_all_seen(backend_.rank());
        }
        take_all_unused();
        finish_pass();
    }

    void finish_pass() {
        const auto in = in_backward();
        wait_for_averages();
        auto* const recording = Recording::current();
        averaged_passes_ += recording == nullptr ? 1 : 0;
        const auto bad = options_.check_gradients
                             ? find_bad_gradient(parameters_, sparse_, use_, *store_)
                             : std::nullopt;
        finalize_gradients();
        weight_.end_pass();
        has_means_ = true;
        if (!shadows_) {
            pass_hooks_.end();
        }
        if (bad) {
            throw_not_finite(parameters_[bad->parameter].name, bad->is_nan, averaged_passes_);
        }
        if (recording == nullptr) {
            count_pass();
        } else {
            weight_.require_even(weight_applies());
            recording->before([this] { weight_.require_even(weight_applies()); });
            recording->after([this] {
                ++averaged_passes_;
                count_pass();
            });
        }
    }

    void count_pass() {
        if (options_.check_parameters > 0 && averaged_passes_ % options_.check_parameters == 0) {
            check_parameters();
        }
        ProcessContext::current().status.steps.fetch_add(1, std::memory_order_relaxed);
        ProcessContext::current().status.advance();
        if (options_.group == nullptr && joined_ == nullptr) { // all ranks get here
            vote_on_preemption(backend_);
        }
    }

    void wait_for_averages() {
        reduce_full_buckets();
        const StepClock::In waiting(ProcessContext::current().clock, StepPart::communication);
        if (options_.find_unused_parameters) {
            use_.exchange_used(backend_);
        }
        store_->wait();
        average_sparse_gradients();
    }

    void take_all_unused() {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (use_.trains(i) && !use_.is_seen(i)) {
                take_unused(i);
            }
        }
    }

    void average_sparse_gradients() {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (sparse_[i] && use_.trains(i)) {
                at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
                at::Tensor mean = sparse_mean(backend_, shadows_ ? at::Tensor() : gradient,
                                              parameters_[i].tensor, store_->divisor());
                if (use_.is_used(i)) { // by some rank
                    gradient = std::move(mean);
                }
            }
        }
    }

    void finalize_gradients() {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            store_->finalize(i, use_.is_used(i), sparse_[i]);
            use_.set_used(i, false);
        }
        store_->end_pass();
    }

    AnyBackend& backend_;
    DataParallelOptions options_;
    std::vector<NamedParameter> parameters_; ///< all of the model's, each once
    std::unique_ptr<GradientStore> store_;
    ModelGuard guard_;         ///< of the model as the store has made it
    std::vector<bool> sparse_; ///< by parameter: its gradient has no place in the store
    UsageTracker use_;
    std::vector<ParameterHook> hooks_;
    BackwardPass pass_{[this] { end_backward(); }};
    bool sync_ = true;
    bool syncs_ = true;      ///< the current pass does
    bool shadows_ = false;   ///< the current pass has nothing from this rank
    bool has_means_ = false; ///< since which no gradient has been added
    JoinedRanks* joined_ = nullptr;
    std::size_t joined_as_ = 0;
    BatchWeight weight_{parameters_};
    PassHooks pass_hooks_{[] {}, [] {}};
    std::int64_t averaged_passes_ = 0;
};

} // namespace rtrain::detail
