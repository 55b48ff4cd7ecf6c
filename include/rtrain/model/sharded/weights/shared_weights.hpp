// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parameters of a sharded model: one copy per node, and each rank's part of them.
///
/// The model's tensors are in read-only memory. Optimizers hold parts instead: tensors of one
/// dimension where the same memory is writable. All ranks step together: none writes before all
/// have reached the step, and none reads before all have left it.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/comm/node/slots.hpp>
#include <rtrain/model/options/sharded_options.hpp>
#include <rtrain/model/parameters/backward_step_hook.hpp>
#include <rtrain/model/parameters/buckets.hpp>
#include <rtrain/model/sharded/plan/shard_dtypes.hpp>
#include <rtrain/model/sharded/plan/shard_transport.hpp>
#include <rtrain/model/sharded/plan/sharded_errors.hpp>
#include <rtrain/model/sharded/plan/units.hpp>
#include <rtrain/model/sharded/weights/gathered_weights.hpp>
#include <rtrain/model/sharded/weights/node_weights.hpp>
#include <rtrain/model/sharded/weights/weight_memory.hpp>
#include <rtrain/process/memory/deferred_copy.hpp>
#include <rtrain/state/optimizer_parts.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::detail {

class SharedWeights {
public:
    /// `ranks`: those of `backend`. Parameters can be shared (sharded_check.hpp). Takes rank 0's
    /// values; the other ranks' memory is released unread. *Collective.* Throws CommError [RT-X12],
    /// ConfigError [RT-C42].
    SharedWeights(std::shared_ptr<AnyBackend> backend, std::unique_ptr<ShardTransport> ranks,
                  const torch::nn::Module& module, std::vector<NamedParameter> parameters,
                  const ShardedOptions& options)
        : backend_(std::move(backend)), ranks_(std::move(ranks)), owners_(ranks_->owners()),
          parameters_(std::move(parameters)), steps_in_backward_(options.step_in_backward),
          is_one_copy_(ranks_->have_one_copy()),
          parts_on_host_(std::holds_alternative<offload::Host>(options.offload) &&
                         !ranks_->device().is_cpu()),
          accumulates_whole_(options.level == Shard::optimizer), offload_(options.offload),
          places_(parameters_.size()), memory_(make_memory(module, options)) {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            index_[parameters_[i].tensor.unsafeGetTensorImpl()] = i;
            by_part_[memory_->part(i).unsafeGetTensorImpl()] = i;
        }
    }
    SharedWeights(const SharedWeights&) = delete;
    SharedWeights& operator=(const SharedWeights&) = delete;

    [[nodiscard]] const comm::BlockOwners& owners() const noexcept { return owners_; }
    [[nodiscard]] ShardTransport& ranks() const noexcept { return *ranks_; }
    [[nodiscard]] AnyBackend& backend() const noexcept { return *backend_; }
    [[nodiscard]] bool steps_in_backward() const noexcept { return steps_in_backward_; }
    [[nodiscard]] const Offload& offload() const noexcept { return offload_; }

    /// See WeightMemory.
    [[nodiscard]] bool gathers() const noexcept { return memory_->gathers(); }
    /// True if ranks have whole weights in separate copies.
    [[nodiscard]] bool are_copies() const noexcept { return !gathers() && !is_one_copy_; }
    void rethrow_failure() const { memory_->rethrow_failure(); }
    void begin_pass() { memory_->begin_pass(); }
    [[nodiscard]] GatherCounts gather_counts() const { return memory_->counts(); }

    /// The number of the parameter that a tensor is, as a whole.
    [[nodiscard]] std::optional<std::size_t> find(const at::Tensor& parameter) const {
        const auto found = index_.find(parameter.unsafeGetTensorImpl());
        return found == index_.end() ? std::nullopt : std::optional(found->second);
    }
    /// This rank's elements of a parameter, maybe none; writable.
    [[nodiscard]] at::Tensor& part(std::size_t parameter) { return memory_->part(parameter); }
    /// Where parts and the sums of their gradients are: pinned if on the host of a device.
    [[nodiscard]] at::TensorOptions parts_on() const {
        return parts_on_host_ ? at::TensorOptions(at::kCPU).pinned_memory(true)
                              : at::TensorOptions(ranks_->device());
    }
    /// Parameters and parts, which only steps, edit() and loading write.
    [[nodiscard]] std::vector<at::Tensor> stepped() const {
        std::vector<at::Tensor> tensors;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            tensors.push_back(parameters_[i].tensor);
            tensors.push_back(memory_->part(i));
        }
        return tensors;
    }
    /// The types of parts, by parameter. A part may be of a wider type than the parameter.
    [[nodiscard]] std::vector<at::ScalarType> part_types() const {
        std::vector<at::ScalarType> types;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            types.push_back(memory_->part(i).scalar_type());
        }
        return types;
    }
    /// The elements that a part holds; null for other tensors.
    [[nodiscard]] const checkpoint::PartOf* find_part(const at::Tensor& part) const {
        const auto found = by_part_.find(part.unsafeGetTensorImpl());
        return found == by_part_.end() ? nullptr : &memory_->of(found->second);
    }
    /// The parameter of a part; undefined for other tensors.
    [[nodiscard]] at::Tensor find_whole(const at::Tensor& part) const {
        const auto found = by_part_.find(part.unsafeGetTensorImpl());
        return found == by_part_.end() ? at::Tensor() : parameters_[found->second].tensor;
    }
    /// Records that an optimizer has the part.
    void take(std::size_t parameter, const std::shared_ptr<BackwardStepHook>& optimizer) {
        places_[parameter].is_taken = true;
        places_[parameter].optimizer = optimizer;
    }

    /// Throws ModelError [RT-M41] for a parameter whose tensor has got new memory.
    void require_in_place() const {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (!memory_->is_in_place(i)) {
                throw_moved(parameters_[i].name);
            }
        }
    }

    /// For a trainable parameter, after a pass: throws ModelError [RT-M42] when no optimizer has
    /// its part, RT-M43 when the gradient of the last step was not zeroed.
    void require_optimizer(std::size_t parameter) const {
        const Place& place = places_[parameter];
        if (!place.is_taken || (steps_in_backward_ && place.optimizer.expired())) {
            throw_without_optimizer(parameters_[parameter].name);
        }
        const at::Tensor& gradient = memory_->part(parameter).grad();
        if (place.stepped.defined() && gradient.is_same(place.stepped) &&
            gradient._version() == place.version) {
            throw_not_zeroed(parameters_[parameter].name);
        }
    }

    /// Drops gradients that passes under no_sync() have left in whole parameters of an optimizer.
    void drop_gradients(const std::shared_ptr<BackwardStepHook>& optimizer) {
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (places_[i].optimizer.lock() == optimizer) {
                parameters_[i].tensor.mutable_grad().reset();
            }
        }
    }
    /// Before and after an optimizer writes. *Collective*, unless backward has done it. Throws
    /// ModelError [RT-M47] when gradients of passes under no_sync() were never sent.
    void begin_step() {
        require_sent();
        memory_->begin_step();
    }
    void end_step() {
        if (steps_in_backward_) {
            awaits_step_ = false;
        } else {
            spread_steps();
        }
    }

    /// Throws ModelError [RT-M46] when backward has stepped without an optimizer's step() since.
    void require_step() const {
        if (awaits_step_) {
            throw_stepped_twice();
        }
    }
    /// When backward steps, no rank steps before all ranks have sent something.
    void before_sending() const {
        if (steps_in_backward_) {
            process::DeferredCopy::finish_all();
        }
    }
    /// Within backward: each optimizer steps those of `parameters` that it has; `give(i)` sets
    /// their gradients, which are then reset. All ranks of the node have contributed theirs.
    template <class Give>
    void step_now(const std::vector<std::size_t>& parameters, Give&& give) {
        std::vector<std::shared_ptr<BackwardStepHook>> optimizers;
        for (const std::size_t i : parameters) {
            auto optimizer = places_[i].optimizer.lock();
            if (optimizer &&
                std::find(optimizers.begin(), optimizers.end(), optimizer) == optimizers.end()) {
                optimizers.push_back(std::move(optimizer));
            }
        }
        for (const auto& optimizer : optimizers) {
            std::vector<std::size_t> stepped;
            std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(stepped),
                         [&](std::size_t i) { return places_[i].optimizer.lock() == optimizer; });
            std::for_each(stepped.begin(), stepped.end(), give);
            optimizer->step();
            for (const std::size_t i : stepped) {
                memory_->part(i).mutable_grad().reset();
                memory_->round(i);
            }
        }
    }
    /// Called when all parts are stepped: makes them visible to all ranks. *Collective.*
    void spread_steps() {
        awaits_step_ = steps_in_backward_;
        std::vector<std::size_t> taken;
        for (std::size_t i = 0; i < places_.size(); ++i) {
            Place& place = places_[i];
            place.stepped = memory_->part(i).grad();
            place.version = place.stepped.defined() ? place.stepped._version() : 0;
            if (place.is_taken) {
                taken.push_back(i);
                if (!steps_in_backward_) {
                    memory_->round(i);
                }
            }
        }
        memory_->end_step(taken);
        bump_versions();
    }

    /// Runs `change` on each rank, which writes its parts outside a step. *Collective.*
    void write_parts(const std::function<void()>& change) {
        if (steps_in_backward_ && ranks_->shares()) {
            backend_->barrier(); // begin_step() relies on backward for it
        }
        memory_->begin_step();
        change();
        std::vector<std::size_t> all;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            memory_->round(i);
            all.push_back(i);
        }
        memory_->end_step(all);
        bump_versions();
    }

    /// Runs `edit` on one rank of each node, while the model's tensors are writable there; its
    /// exception is thrown on all ranks. *Collective.*
    void edit(const std::function<void()>& edit) {
        const torch::NoGradGuard no_grad;
        memory_->edit(edit);
        bump_versions();
    }
    /// Runs `read` on each rank, while the model's tensors are complete. *Collective.*
    void read(const std::function<void()>& read) { memory_->read(read); }

private:
    void require_sent() const {
        for (std::size_t i = 0; i < places_.size() && accumulates_whole_; ++i) {
            const at::Tensor& parameter = parameters_[i].tensor;
            if (places_[i].is_taken && parameter.requires_grad() && parameter.grad().defined()) {
                throw_not_sent(parameters_[i].name);
            }
        }
    }

    struct Place {
        bool is_taken = false;
        std::weak_ptr<BackwardStepHook> optimizer; ///< the last that has taken it
        at::Tensor stepped;                        ///< the gradient of the last step
        std::int64_t version = 0;
    };

    [[nodiscard]] std::unique_ptr<WeightMemory> make_memory(const torch::nn::Module& module,
                                                            const ShardedOptions& options) {
        const auto types = shard_dtypes(parameters_, options);
        const WeightMemory::Contents of{*backend_, *ranks_, parameters_, types, parts_on_host_};
        if (options.level == Shard::parameters && !is_one_copy_) {
            return std::make_unique<GatheredWeights>(
                of, plan_units(module, parameters_, options.units), options.resident_units);
        }
        return std::make_unique<NodeWeights>(of, steps_in_backward_);
    }

    /// Makes graphs of earlier forward passes stale.
    void bump_versions() const {
        for (const NamedParameter& parameter : parameters_) {
            parameter.tensor.unsafeGetTensorImpl()->bump_version();
        }
    }

    std::shared_ptr<AnyBackend> backend_;
    std::unique_ptr<ShardTransport> ranks_;
    comm::BlockOwners owners_;
    std::vector<NamedParameter> parameters_;
    bool steps_in_backward_;
    bool is_one_copy_;
    bool parts_on_host_;
    bool accumulates_whole_; ///< under no_sync()
    Offload offload_;
    bool awaits_step_ = false;  ///< of an optimizer, after a pass
    std::vector<Place> places_; ///< by parameter
    std::unique_ptr<WeightMemory> memory_;
    std::unordered_map<const void*, std::size_t> index_;
    std::unordered_map<const void*, std::size_t> by_part_;
};

} // namespace rtrain::detail
