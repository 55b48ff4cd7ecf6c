// SPDX-License-Identifier: Apache-2.0
/// @file
/// The engine of a prepared model: makes parameters equal on all ranks, broadcasts buffers,
/// averages gradients.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/model/batch_norm/connect_batch_norms.hpp>
#include <rtrain/model/ddp/clip_gradients.hpp>
#include <rtrain/model/ddp/gradient_arena.hpp>
#include <rtrain/model/ddp/gradient_buckets.hpp>
#include <rtrain/model/ddp/join.hpp>
#include <rtrain/model/ddp/preemption_vote.hpp>
#include <rtrain/model/ddp/prepared_model.hpp>
#include <rtrain/model/ddp/reducer.hpp>
#include <rtrain/model/options/options.hpp>
#include <rtrain/model/parameters/handle_messages.hpp>
#include <rtrain/model/parameters/optimizer_parameter_registry.hpp>
#include <rtrain/model/parameters/parameter_hook.hpp>
#include <rtrain/model/parameters/recording.hpp>
#include <rtrain/model/parameters/synchronize.hpp>
#include <rtrain/model/profile/backward_time.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/memory/deferred_copy.hpp>
#include <rtrain/process/status/step_clock.hpp>
#include <rtrain/process/status/user_call.hpp>

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::detail {

class Engine : public PreparedModel, private GradientListener {
public:
    /// `make_store`: creates the store of gradients on several ranks, if they are not in buckets;
    /// it also gives parameters rank 0's values.
    Engine(std::shared_ptr<AnyBackend> backend, const std::shared_ptr<torch::nn::Module>& module,
           const DataParallelOptions& options, const MakeStore& make_store = {})
        : backend_(options.group == nullptr ? std::move(backend) : backend->over(options.group)),
          options_(options), module_(module) {
        process::DeferredCopy::finish_all();
        check_model(*backend_, *module, options_);
        batch_norms_ = connect_batch_norms(backend_, *module);
        const bool plain = options_.reduction_order == ReductionOrder::ranks;
        if (alone() && plain && !options_.check_gradients) {
            mark_prepared(*module); // one rank runs the bare model
            return;
        }
        if (!alone()) {
            broadcast_coalesced(*backend_, make_store
                                               ? unversioned_buffers(*module, options_.ignore)
                                               : shared_values(*module));
        }
        DataParallelOptions averaging = options_;
        if (alone() && plain) {
            averaging.hook = hook::None{}; // only checks what the bare model does
            averaging.find_unused_parameters = true;
        }
        reducer_ = std::make_unique<Reducer>(*backend_, module, averaging,
                                             alone() || !make_store ? make_buckets(module->name())
                                                                    : make_store);
        reducer_->set_pass_hooks({[this] { begin_pass(); }, [this] { end_pass(); }});
        start_->begin = [this] { reducer_->enter_backward(); };
        start_->end = &GradientArena::leave;
    }

    ~Engine() override {
        start_->begin = [] {};
    } // outputs may outlive it

    [[nodiscard]] const DataParallelOptions& options() const override { return options_; }

    void begin_forward() override {
        (void)ProcessContext::current().clock.enter(StepPart::forward);
        if (auto* const recording = Recording::current()) {
            take_part(*recording);
        }
        if (at::GradMode::is_enabled()) {
            start_->reached = true;
            if (reducer_) {
                GradientArena::leave(); // where an exception has ended backward
                reducer_->require_unchanged();
                reducer_->follow_batch();
            }
        }
        synchronize_buffers();
    }
    void end_forward(const at::Tensor& output) override { time_backward_from(output, start_); }
    void end_forward_without_tensors(const char* type) override {
        if (at::GradMode::is_enabled() && !std::exchange(has_said_no_tensors_, true)) {
            warn_of_no_tensors(module_.lock()->name(), type, backend_->rank());
        }
    }

    [[nodiscard]] std::uint64_t next_pass() const override {
        return reducer_ ? reducer_->next_pass() : 0;
    }
    void set_sync(bool sync) override {
        if (reducer_) {
            reducer_->set_sync(sync);
        }
    }
    [[nodiscard]] bool sync() const override { return !reducer_ || reducer_->sync(); }

    double clip(double max_norm, double norm_type, bool error_if_nonfinite) override {
        const torch::NoGradGuard no_grad;
        return detail::clip(gradients(), max_norm, norm_type, error_if_nonfinite,
                            [](double norm) { return norm; });
    }

    void average_parameters() override {
        if (alone()) {
            return;
        }
        const UserCall::In in(UserCall::average_parameters);
        process::DeferredCopy::finish_all();
        std::vector<at::Tensor> values = shared_values(*module_.lock());
        std::erase_if(values, [](const at::Tensor& value) { return !value.is_floating_point(); });
        average_coalesced(*backend_, std::move(values));
        if (options_.group == nullptr) { // passes under no_sync() do not vote
            vote_on_preemption(*backend_);
        }
    }

    [[nodiscard]] std::size_t bucket_count() const override {
        return reducer_ ? reducer_->bucket_count() : 0;
    }

    [[nodiscard]] std::vector<at::Tensor> ignored() const override {
        const auto module = module_.lock();
        return module ? tensors_named(*module, options_.ignore) : std::vector<at::Tensor>();
    }
    [[nodiscard]] std::vector<at::Tensor> shared() const override {
        std::vector<at::Tensor> parameters;
        if (const auto module = module_.lock()) {
            for (const auto& [name, parameter] : distinct_parameters(*module, options_.ignore)) {
                parameters.push_back(parameter);
            }
        }
        return parameters;
    }
    [[nodiscard]] std::vector<at::Tensor> stepped() const override {
        const auto stepped = OptimizerParameterRegistry::now();
        std::vector<at::Tensor> parameters = shared();
        std::erase_if(parameters, [&](const at::Tensor& parameter) {
            return !stepped.contains(parameter.unsafeGetTensorImpl());
        });
        return parameters;
    }
    [[nodiscard]] bool is_gone() const override { return module_.expired(); }
    void check_parameters(checkpoint::Compared* later) override {
        if (reducer_ && reducer_->sync()) {
            const bool all_wait = options_.group == nullptr && stepped().size() >= shared().size();
            reducer_->check_parameters(all_wait ? later : nullptr);
        }
    }
    void save_hook(StateWriter out, bool by_rows) override {
        if (reducer_) {
            RankStateWriter writer(std::move(out), *backend_, by_rows);
            reducer_->save_hooks(writer);
        }
    }
    void load_hook(const StateReader& in) override {
        if (reducer_) {
            reducer_->load_hooks(in);
        }
    }

    [[nodiscard]] HookRanks* ranks() override {
        return reducer_ && !alone() ? backend_.get() : nullptr;
    }
    void set_join(JoinedRanks* joined, std::size_t number) override {
        const bool rounds = std::holds_alternative<hook::PowerSgd>(options_.hook) ||
                            std::holds_alternative<hook::Custom>(options_.hook);
        if (joined != nullptr &&
            (rounds || options_.reduction_order == ReductionOrder::micro_batches)) {
            throw ConfigError(
                "RT-C12",
                "join() divides gradients by the number of active ranks, but the hooks PowerSgd "
                "and Custom and reduction_order micro_batches do not; remove one of the two");
        }
        reducer_->set_join(joined, number);
    }
    void shadow(const JoinedRanks::Next& next) override {
        if (next.step == JoinedRanks::Step::backward) {
            reducer_->shadow_pass(next.active);
        } else if (const auto held = module_.lock()) {
            broadcast_coalesced(*backend_, unversioned_buffers(*held, options_.ignore),
                                next.first_active);
        }
    }

protected:
    [[nodiscard]] bool alone() const { return backend_->size() == 1; }
    [[nodiscard]] AnyBackend& backend() const noexcept { return *backend_; }
    /// Gives all ranks the first rank's buffers.
    void spread_buffers() {
        if (auto buffers = unversioned_buffers(*module_.lock(), options_.ignore);
            !buffers.empty()) {
            broadcast_coalesced(*backend_, std::move(buffers));
        }
    }
    /// The model's gradients, in few tensors.
    [[nodiscard]] std::vector<at::Tensor> gradients() const {
        return reducer_ ? reducer_->gradients() : own_gradients();
    }

private:
    /// Registers what each replay of a step relies on.
    void take_part(Recording& recording) {
        if (!recording.remember(this)) {
            return;
        }
        const std::vector<at::Tensor> parameters = shared();
        recording.watch(parameters);
        const auto flags = [module = module_, parameters] {
            std::vector<bool> all;
            for (const at::Tensor& parameter : parameters) {
                all.push_back(parameter.requires_grad());
            }
            const auto held = module.lock();
            for (const auto& part : held ? held->modules() : decltype(held->modules())()) {
                all.push_back(part->is_training());
            }
            return all;
        };
        recording.before([this, flags, recorded = flags()] {
            if (flags() != recorded) {
                throw_changed_since_capture("parameters were frozen or unfrozen, or train() or "
                                            "eval() was called on a module,");
            }
            if (reducer_) {
                reducer_->require_unchanged();
            }
        });
    }

    /// Called when gradients of a pass begin to arrive.
    void begin_pass() {
        if (start_->reached) {
            return;
        }
        if (options_.autocast) {
            throw_without_autocast(module_.lock()->name());
        }
        reducer_->follow_batch();
    }
    /// Gives a model that was called without its handle rank 0's buffers, before its next forward
    /// pass; this backward pass still needed its own.
    void end_pass() {
        if (!std::exchange(start_->reached, false)) {
            synchronize_buffers();
        }
    }

    [[nodiscard]] MakeStore make_buckets(const std::string& model) {
        return [this, model](const auto& parameters, const DataParallelOptions& options) {
            return std::make_unique<GradientBuckets>(*backend_, model, parameters, options);
        };
    }

    void synchronize_buffers() {
        if (alone() || !options_.broadcast_buffers || !sync()) {
            return;
        }
        const auto module = module_.lock();
        if (!module->is_training()) {
            return;
        }
        auto buffers = unversioned_buffers(*module, options_.ignore);
        if (buffers.empty()) {
            return;
        }
        const StepClock::In waiting(ProcessContext::current().clock, StepPart::communication);
        int root = 0;
        if (auto* const joined = reducer_->joined(); joined != nullptr) {
            using Step = JoinedRanks::Step;
            root = joined->announce(Step::buffers, reducer_->joined_as()).first_active;
        }
        broadcast_coalesced(*backend_, std::move(buffers), root);
    }

    /// For one rank, where nothing is averaged: the same mistake gives the same error.
    void mark_prepared(const torch::nn::Module& module) {
        for (const auto& [name, parameter] : distinct_parameters(module, options_.ignore)) {
            marks_.emplace_back(parameter, marks_.size(),
                                options_.autocast ? static_cast<GradientListener*>(this) : nullptr);
            require_sole(name, parameter);
        }
    }

    /// Called for a model on one rank only.
    void gradient_ready(std::size_t /*parameter*/) override {
        if (!start_->reached) {
            throw_without_autocast(module_.lock()->name());
        }
    }

    /// Parameters and buffers that are equal on all ranks.
    [[nodiscard]] std::vector<at::Tensor> shared_values(const torch::nn::Module& module) const {
        std::vector<at::Tensor> values;
        for (const auto& [name, parameter] : distinct_parameters(module, options_.ignore)) {
            values.push_back(parameter);
        }
        for (const at::Tensor& buffer : unversioned_buffers(module, options_.ignore)) {
            values.push_back(buffer);
        }
        return values;
    }

    /// The gradients on one rank, as backward made them.
    [[nodiscard]] std::vector<at::Tensor> own_gradients() const {
        std::vector<at::Tensor> gradients;
        for (const auto& [name, parameter] :
             distinct_parameters(*module_.lock(), options_.ignore)) {
            add_gradient(gradients, parameter);
        }
        return gradients;
    }

    std::shared_ptr<AnyBackend> backend_;
    DataParallelOptions options_;
    std::weak_ptr<torch::nn::Module> module_;
    c10::intrusive_ptr<BatchNormRanks> batch_norms_; ///< keeps them connected
    std::unique_ptr<Reducer> reducer_;
    std::vector<ParameterHook> marks_;
    /// Reached after a forward pass through the handle, or once backward from its output has begun.
    std::shared_ptr<BackwardStart> start_ = std::make_shared<BackwardStart>();
    bool has_said_no_tensors_ = false;
};

} // namespace rtrain::detail
