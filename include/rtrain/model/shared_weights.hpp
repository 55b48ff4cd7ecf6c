// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parameters of a sharded model: one copy a node, and each rank's part of them.
///
/// The model's tensors lie where they can only be read. Optimizers hold parts instead: tensors of
/// one dimension where the same memory is written. All ranks step together: none writes before all
/// have come to the step, and none reads before all have left it.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/backend/collectives.hpp>
#include <rtrain/backend/writable.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/model/shard_plan.hpp>
#include <rtrain/model/sharded_errors.hpp>
#include <rtrain/model/sharded_options.hpp>
#include <rtrain/model/step_link.hpp>
#include <rtrain/model/synchronize.hpp>
#include <rtrain/model/weight_exchange.hpp>
#include <rtrain/state/exact_parts.hpp>
#include <rtrain/state/optimizer_parts.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <malloc.h>

namespace rtrain::detail {

class SharedWeights {
public:
    /// `backend` has a communicator, and parameters can be shared (sharded_check.hpp). `types`:
    /// those that they are kept in (kept_types.hpp). Rank 0's values count; the other ranks' memory
    /// is let go unread. *Collective.* Throws CommError [RT-X12].
    SharedWeights(std::shared_ptr<AnyBackend> backend, std::vector<NamedParameter> parameters,
                  const std::vector<at::ScalarType>& types, const ShardedOptions& options)
        : backend_(std::move(backend)), ranks_(*backend_->communicator()),
          owners_(ranks_.block_owners()), is_shared_(options.share == Share::node),
          exchange_(ranks_, is_shared_), parameters_(std::move(parameters)),
          steps_in_backward_(options.step_in_backward),
          accumulates_whole_(options.level == Shard::optimizer), offload_(options.offload) {
        move_into_array(types);
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            index_[parameters_[i].tensor.unsafeGetTensorImpl()] = i;
            by_part_[places_[i].part.unsafeGetTensorImpl()] = i;
        }
    }
    SharedWeights(const SharedWeights&) = delete;
    SharedWeights& operator=(const SharedWeights&) = delete;

    [[nodiscard]] const comm::BlockOwners& owners() const noexcept { return owners_; }
    [[nodiscard]] comm::Communicator& ranks() const noexcept { return ranks_; }
    [[nodiscard]] AnyBackend& backend() const noexcept { return *backend_; }
    [[nodiscard]] bool steps_in_backward() const noexcept { return steps_in_backward_; }
    [[nodiscard]] const Offload& offload() const noexcept { return offload_; }

    /// Which parameter a tensor is, as a whole.
    [[nodiscard]] std::optional<std::size_t> find(const at::Tensor& parameter) const {
        const auto found = index_.find(parameter.unsafeGetTensorImpl());
        return found == index_.end() ? std::nullopt : std::optional(found->second);
    }
    /// This rank's elements of a parameter, maybe none; where they can be written.
    [[nodiscard]] at::Tensor& part(std::size_t parameter) { return places_[parameter].part; }
    /// By parameter. A part may be of a wider type than the parameter.
    [[nodiscard]] std::vector<at::ScalarType> part_types() const {
        std::vector<at::ScalarType> types;
        for (const Place& place : places_) {
            types.push_back(place.part.scalar_type());
        }
        return types;
    }
    /// Which ones a part holds; null for other tensors.
    [[nodiscard]] const checkpoint::PartOf* find_part(const at::Tensor& part) const {
        const auto found = by_part_.find(part.unsafeGetTensorImpl());
        return found == by_part_.end() ? nullptr : &places_[found->second].of;
    }
    /// An optimizer has the part.
    void take(std::size_t parameter, const std::shared_ptr<StepLink>& optimizer) {
        places_[parameter].is_taken = true;
        places_[parameter].optimizer = optimizer;
    }

    /// Throws ModelError [RT-M41] for a parameter whose tensor has got memory of its own.
    void require_in_place() const {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            const at::Tensor& tensor = parameters_[i].tensor;
            if (tensor.numel() > 0 &&
                tensor.const_data_ptr() != array_->read() + places_[i].offset) {
                throw_moved(parameters_[i].name);
            }
        }
    }

    /// Of a parameter that trains, behind a pass: throws ModelError [RT-M42] when no optimizer has
    /// its part, RT-M43 when the gradient of the last step is still there.
    void require_optimizer(std::size_t parameter) const {
        const Place& place = places_[parameter];
        if (!place.is_taken || (steps_in_backward_ && place.optimizer.expired())) {
            throw_without_optimizer(parameters_[parameter].name);
        }
        const at::Tensor& gradient = place.part.grad();
        if (place.stepped.defined() && gradient.is_same(place.stepped) &&
            gradient._version() == place.version) {
            throw_not_zeroed(parameters_[parameter].name);
        }
    }

    /// What passes under no_sync() have left in whole parameters of an optimizer is not to be sent.
    void drop_gradients(const std::shared_ptr<StepLink>& optimizer) {
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (places_[i].optimizer.lock() == optimizer) {
                parameters_[i].tensor.mutable_grad().reset();
            }
        }
    }
    /// Around what optimizers write. *Collective*, unless backward has done it. Throws ModelError
    /// [RT-M47] when passes under no_sync() have left gradients that nobody has sent.
    void begin_step() {
        require_sent();
        if (!steps_in_backward_) {
            backend_->barrier();
        }
    }
    void end_step() {
        if (steps_in_backward_) {
            awaits_step_ = false;
        } else {
            spread_steps();
        }
    }

    /// Throws ModelError [RT-M46] when backward has stepped, and no optimizer's step() came since.
    void require_step() const {
        if (awaits_step_) {
            throw_stepped_twice();
        }
    }
    /// Within backward: each optimizer steps those of `parameters` that it has, which `give(i)`
    /// gives a gradient, for as long as that takes. All ranks of the node have brought theirs.
    template <class Give>
    void step_now(const std::vector<std::size_t>& parameters, Give&& give) {
        std::vector<std::shared_ptr<StepLink>> optimizers;
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
                places_[i].part.mutable_grad().reset();
                round(i);
            }
        }
    }
    /// All parts are stepped: everybody sees them. *Collective.*
    void spread_steps() {
        awaits_step_ = steps_in_backward_;
        for (Place& place : places_) {
            place.stepped = place.part.grad();
            place.version = place.stepped.defined() ? place.stepped._version() : 0;
        }
        for (std::size_t i = 0; i < places_.size() && !steps_in_backward_; ++i) {
            round(i);
        }
        exchange();
        backend_->barrier();
        for (const NamedParameter& parameter : parameters_) {
            parameter.tensor.unsafeGetTensorImpl()->bump_version(); // graphs of before are stale
        }
    }

    /// Runs `edit` on one rank of each node, while the model's tensors can be written there; what
    /// it throws, all ranks throw. *Collective.*
    template <class Edit>
    void edit(Edit&& edit) {
        backend_->barrier();
        succeed_together(*backend_, [&] {
            if (owners_.place == 0) {
                const torch::NoGradGuard no_grad;
                const Opened opened(*this);
                edit();
            }
        });
        const torch::NoGradGuard no_grad;
        if (!is_shared_) {
            spread();
        }
        take_over();
        for (const NamedParameter& parameter : parameters_) {
            parameter.tensor.unsafeGetTensorImpl()->bump_version();
        }
    }

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
        std::size_t offset = 0;           ///< in the array, in bytes
        at::ScalarType type = at::kFloat; ///< there
        comm::Slices slices;
        at::Tensor part;
        at::Tensor rounded; ///< where a part of another type goes in the array
        checkpoint::PartOf of;
        bool is_taken = false;
        std::weak_ptr<StepLink> optimizer; ///< the last that has taken it
        at::Tensor stepped;                ///< the gradient of the last step, and
        std::int64_t version = 0;
    };

    /// The model's tensors where they can be written, for as long as it lives.
    class Opened {
    public:
        explicit Opened(SharedWeights& weights) : weights_(weights) {
            weights_.point_at(weights_.array_->write());
        }
        Opened(const Opened&) = delete;
        Opened& operator=(const Opened&) = delete;
        ~Opened() { weights_.point_at(weights_.array_->read()); }

    private:
        SharedWeights& weights_;
    };

    void move_into_array(const std::vector<at::ScalarType>& types) {
        const torch::NoGradGuard no_grad;
        std::size_t bytes = 0;
        std::vector<comm::NodeArray::Part> names;
        for (auto& [name, tensor] : parameters_) {
            Place& place = places_.emplace_back();
            place.offset = bytes;
            place.type = types[places_.size() - 1];
            const std::size_t size =
                static_cast<std::size_t>(tensor.numel()) * c10::elementSize(place.type);
            const auto strides =
                tensor.is_non_overlapping_and_dense()
                    ? tensor.strides().vec()
                    : at::empty_like(tensor, at::MemoryFormat::Contiguous).strides().vec();
            place.of = {tensor.sizes().vec(), strides, tensor.is_contiguous(), 0};
            constexpr std::size_t line = 64;
            bytes += (size + line - 1) / line * line;
            names.push_back({place.offset, place.offset + size,
                             concat("rtrain: parameter \"", name,
                                    "\" of a sharded model was written in place [RT-M44]. All "
                                    "ranks of a node read it: change it within model.edit(), and "
                                    "pass optimizers through worker.prepare()\n")});
        }
        array_ = ranks_.allocate_array(bytes, std::move(names), is_shared_);
        for (std::size_t i = 0; i < parameters_.size() && backend_->rank() == 0; ++i) {
            at_memory(array_->write(), i).copy_(parameters_[i].tensor);
        }
        if (owners_.nodes > 1 || !is_shared_) {
            spread();
        }
        backend_->barrier();
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            make_part(i);
        }
        point_at(array_->read());
        ::malloc_trim(0); // what the ranks had of their own
    }

    void make_part(std::size_t index) {
        Place& place = places_[index];
        const at::Tensor& parameter = parameters_[index].tensor;
        const at::Tensor kept = at_memory(array_->read(), index);
        place.slices = slices_of(kept, owners_.count());
        place.of.is_contiguous = kept.is_contiguous();
        const bool owns = owners_.owns();
        place.of.begin = owns ? place.slices.begin(owners_.mine()) : parameter.numel();
        const std::int64_t count = owns ? place.slices.count(owners_.mine()) : 0;
        auto* const memory =
            array_->write() + place.offset +
            static_cast<std::size_t>(place.of.begin) * c10::elementSize(place.type);
        place.part = at::from_blob(
            memory, {count}, [array = array_](void* /*data*/) {}, at::TensorOptions(place.type));
        if (place.type != parameter.scalar_type()) {
            keep_exactly(index);
        }
        place.part.set_requires_grad(true);
    }
    /// The part becomes memory of its own, with rank 0's values in the type they have.
    void keep_exactly(std::size_t index) {
        Place& place = places_[index];
        const at::Tensor& parameter = parameters_[index].tensor;
        const at::Tensor whole = at::empty_strided(place.of.shape, place.of.strides,
                                                   parameter.options().requires_grad(false));
        if (backend_->rank() == 0) {
            whole.copy_(parameter);
        }
        at::Tensor flat = whole.as_strided({whole.numel()}, {1});
        if (flat.numel() > 0) {
            backend_->broadcast(flat, 0);
        }
        place.rounded =
            std::exchange(place.part, flat.narrow(0, place.of.begin, place.part.numel()).clone());
        if (at::Tensor& gradient = parameter.mutable_grad(); gradient.defined()) {
            gradient = gradient.to(place.type);
        }
        exact_.add(parameter, {place.of, place.part});
    }

    /// What a step has made of an exact part, into the array.
    void round(std::size_t index) {
        if (Place& place = places_[index]; place.rounded.defined() && place.is_taken) {
            const torch::NoGradGuard no_grad;
            place.rounded.copy_(place.part);
        }
    }
    /// What others have written into the array, into exact parts: elements that these do not round
    /// to.
    void take_over() {
        for (Place& place : places_) {
            if (place.rounded.defined()) {
                const at::Tensor others = place.part.to(place.type).ne(place.rounded);
                place.part.copy_(
                    at::where(others, place.rounded.to(place.part.scalar_type()), place.part));
            }
        }
    }

    /// A parameter in one of the array's two mappings.
    [[nodiscard]] at::Tensor at_memory(std::byte* mapping, std::size_t index) const {
        const Place& place = places_[index];
        return at::from_blob(
            mapping + place.offset, place.of.shape, place.of.strides,
            [array = array_](void* /*data*/) {}, at::TensorOptions(place.type));
    }
    void point_at(std::byte* mapping) {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            parameters_[i].tensor.set_data(at_memory(mapping, i));
        }
    }

    /// All copies get what the owners of parts have stepped.
    void exchange() {
        std::vector<WeightCopy> taken;
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (places_[i].is_taken) {
                taken.push_back({array_->write() + places_[i].offset, places_[i].slices,
                                 static_cast<std::size_t>(parameters_[i].tensor.element_size())});
            }
        }
        exchange_.run(taken);
    }
    /// All copies become rank 0's. *Collective.*
    void spread() {
        std::vector<at::Tensor> values;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            values.push_back(at_memory(array_->write(), i));
        }
        broadcast_coalesced(*backend_, std::move(values)); // ranks that share one write the same
    }

    std::shared_ptr<AnyBackend> backend_;
    comm::Communicator& ranks_;
    comm::BlockOwners owners_;
    bool is_shared_; ///< as was asked for
    WeightExchange exchange_;
    std::vector<NamedParameter> parameters_;
    bool steps_in_backward_;
    bool accumulates_whole_; ///< under no_sync()
    Offload offload_;
    bool awaits_step_ = false;  ///< of an optimizer, behind a pass
    std::vector<Place> places_; ///< by parameter
    std::shared_ptr<comm::NodeArray> array_;
    checkpoint::ExactParts exact_;
    std::unordered_map<const void*, std::size_t> index_;
    std::unordered_map<const void*, std::size_t> by_part_;
};

} // namespace rtrain::detail
