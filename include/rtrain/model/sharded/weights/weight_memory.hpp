// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory for the weights of a sharded model: how parameters are laid out, which part of each is
/// this rank's, and memory that holds all of them.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/comm/kernels/slices.hpp>
#include <rtrain/comm/node/node_array.hpp>
#include <rtrain/model/sharded/plan/shard_plan.hpp>
#include <rtrain/model/sharded/plan/shard_transport.hpp>
#include <rtrain/model/sharded/plan/unit_order.hpp>
#include <rtrain/state/exact_parts.hpp>
#include <rtrain/state/optimizer_parts.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rtrain::detail {

class WeightMemory {
public:
    /// All but `types` outlive the weights.
    struct Contents {
        AnyBackend& backend;
        ShardTransport& ranks; ///< those of `backend`
        const std::vector<NamedParameter>& parameters;
        const std::vector<at::ScalarType>& types; ///< in which parameters are stored
        bool parts_on_host;                       ///< of a model on a device
    };

    WeightMemory(const WeightMemory&) = delete;
    WeightMemory& operator=(const WeightMemory&) = delete;
    virtual ~WeightMemory() = default;

    /// This rank's elements of a parameter, maybe none; writable.
    [[nodiscard]] at::Tensor& part(std::size_t parameter) { return places_[parameter].part; }
    /// The elements that a part holds.
    [[nodiscard]] const checkpoint::PartOf& of(std::size_t parameter) const {
        return places_[parameter].of;
    }
    /// True if the model's tensor still has the memory that it was given.
    [[nodiscard]] virtual bool is_in_place(std::size_t parameter) const = 0;

    /// True if ranks have parts only, between uses.
    [[nodiscard]] virtual bool gathers() const noexcept = 0;
    /// Rethrows the exception of a failed gathering, if there is one.
    virtual void rethrow_failure() const {}
    /// Called when the model is called: its uses start over in their order.
    virtual void begin_pass() {}
    [[nodiscard]] virtual GatherCounts counts() const { return {}; }

    /// Called before parts are stepped. *Collective.*
    virtual void begin_step() = 0;
    /// Called when the part of a parameter is stepped.
    void round(std::size_t parameter) {
        if (const at::Tensor& used = places_[parameter].used; used.defined()) {
            const c10::NoGradGuard no_grad;
            used.copy_(places_[parameter].part);
        }
    }
    /// Called when all parts are stepped: makes those of `stepped` visible to all ranks.
    /// *Collective.*
    virtual void end_step(const std::vector<std::size_t>& stepped) = 0;

    /// Runs `edit` on one rank of each node, while the model's tensors are writable there; its
    /// exception is thrown on all ranks. *Collective.*
    virtual void edit(const std::function<void()>& edit) = 0;
    /// Runs `read` on each rank, while the model's tensors are complete. *Collective.*
    virtual void read(const std::function<void()>& read) = 0;

protected:
    struct Place {
        std::size_t offset = 0;           ///< in an array of all parameters, in bytes
        at::ScalarType type = at::kFloat; ///< of the array
        comm::Slices slices;
        at::Tensor part;
        at::Tensor used; ///< its copy that is read, if it is elsewhere or of another type
        checkpoint::PartOf of;
    };

    explicit WeightMemory(const Contents& of)
        : backend_(of.backend), ranks_(of.ranks), owners_(of.ranks.owners()),
          parameters_(of.parameters), parts_on_host_(of.parts_on_host) {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            lay_out(parameters_[i].tensor, of.types[i]);
        }
    }

    [[nodiscard]] std::int64_t elements_of_part(std::size_t parameter) const {
        return owners_.owns() ? places_[parameter].slices.count(owners_.mine()) : 0;
    }
    [[nodiscard]] std::size_t bytes_of(std::size_t parameter) const {
        return static_cast<std::size_t>(parameters_[parameter].tensor.numel()) *
               c10::elementSize(places_[parameter].type);
    }
    /// The same in whole cache lines: parameters are adjacent in memory.
    [[nodiscard]] std::size_t room_of(std::size_t parameter) const {
        constexpr std::size_t line = 64;
        return (bytes_of(parameter) + line - 1) / line * line;
    }
    /// Keeps ranks that share memory from writing before others have read it, and from reading
    /// early.
    void meet() {
        if (ranks_.shares()) {
            backend_.barrier();
        }
    }
    /// Allocates memory for all parameters. *Collective.*
    [[nodiscard]] WeightArray allocate_whole() {
        std::vector<comm::NodeArray::Part> names;
        for (std::size_t i = 0; i < places_.size(); ++i) {
            const std::size_t begin = places_[i].offset;
            names.push_back({begin, begin + bytes_of(i),
                             concat("rtrain: parameter \"", parameters_[i].name,
                                    "\" of a sharded model was written in place [RT-M44]. All "
                                    "ranks of a node read it: change it within model.edit(), and "
                                    "pass optimizers through worker.prepare()\n")});
        }
        return ranks_.allocate_array(bytes_, std::move(names));
    }
    [[nodiscard]] at::TensorOptions on_device(at::ScalarType type) const {
        return at::TensorOptions(ranks_.device()).dtype(type);
    }
    /// A parameter in one of the mappings of an array of all.
    [[nodiscard]] at::Tensor at_memory(const WeightArray& array, std::byte* mapping,
                                       std::size_t index) const {
        const Place& place = places_[index];
        return tensor_at(mapping + place.offset, place.of.shape, on_device(place.type),
                         at::IntArrayRef(place.of.strides), array.owner);
    }
    void point_at(const WeightArray& array, std::byte* mapping) const {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            give_memory(i, at_memory(array, mapping, i));
        }
    }
    /// Keeps the parameter's tensor object. set_data() is also an operator, but not a use.
    void give_memory(std::size_t index, const at::Tensor& memory) const {
        const at::RecordFunctionGuard unseen(false);
        parameters_[index].tensor.set_data(memory);
    }
    /// This rank's elements of a parameter, with rank 0's values in their original type.
    /// *Collective.*
    [[nodiscard]] at::Tensor exact_part(std::size_t index) {
        const Place& place = places_[index];
        const at::Tensor& parameter = parameters_[index].tensor;
        const at::Tensor whole = at::empty_strided(place.of.shape, place.of.strides,
                                                   parameter.options().requires_grad(false));
        if (backend_.rank() == 0) {
            whole.copy_(parameter);
        }
        at::Tensor flat = whole.as_strided({whole.numel()}, {1});
        if (flat.numel() > 0) {
            backend_.broadcast(flat, 0);
        }
        const at::Tensor mine = flat.narrow(0, place.of.begin, elements_of_part(index));
        const auto on_host = mine.options().device(at::kCPU).pinned_memory(true);
        return parts_on_host_ ? at::empty(mine.sizes(), on_host).copy_(mine) : mine.clone();
    }
    /// Gives the part separate memory, which checkpoints hold.
    void keep_exactly(std::size_t index, const at::Tensor& part,
                      std::function<void()> loaded = nullptr) {
        const at::Tensor& parameter = parameters_[index].tensor;
        places_[index].part = part;
        if (at::Tensor& gradient = parameter.mutable_grad(); gradient.defined()) {
            gradient = gradient.to(places_[index].type);
        }
        exact_.add(parameter, {places_[index].of, part, std::move(loaded)});
    }
    /// Copies what others have written into an array, `rounded`, to an exact part: only elements
    /// that do not round to it.
    static void take_over(const at::Tensor& part, const at::Tensor& rounded) {
        const at::Tensor there = rounded.to(part.device());
        const at::Tensor differs = part.to(there.scalar_type()).ne(there);
        part.copy_(at::where(differs, there.to(part.scalar_type()), part));
    }

    AnyBackend& backend_;
    ShardTransport& ranks_;
    comm::BlockOwners owners_;
    const std::vector<NamedParameter>& parameters_;
    bool parts_on_host_;
    std::vector<Place> places_; ///< by parameter
    checkpoint::ExactParts exact_;

private:
    void lay_out(const at::Tensor& tensor, at::ScalarType type) {
        Place& place = places_.emplace_back();
        place.offset = bytes_;
        place.type = type;
        const auto strides =
            tensor.is_non_overlapping_and_dense()
                ? tensor.strides().vec()
                : at::empty_like(tensor, at::MemoryFormat::Contiguous).strides().vec();
        const at::Tensor kept =
            at::empty_strided(tensor.sizes(), strides, at::TensorOptions(at::kMeta).dtype(type));
        place.slices = slices_of(kept, owners_.count());
        place.of = {tensor.sizes().vec(), strides, kept.is_contiguous(),
                    owners_.owns() ? place.slices.begin(owners_.mine()) : tensor.numel()};
        bytes_ += room_of(places_.size() - 1);
    }

    std::size_t bytes_ = 0;
};

} // namespace rtrain::detail
