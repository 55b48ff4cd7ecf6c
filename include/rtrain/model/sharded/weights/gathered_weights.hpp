// SPDX-License-Identifier: Apache-2.0
/// @file
/// Weights of which each rank holds only its part. Units of them (units.hpp) are gathered when an
/// operator is about to use them (gather_on_use.hpp), into slots that the ranks of a node share.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/model/sharded/plan/unit_all_gather.hpp>
#include <rtrain/model/sharded/plan/units.hpp>
#include <rtrain/model/sharded/weights/gather_on_use.hpp>
#include <rtrain/model/sharded/weights/weight_memory.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <malloc.h>

namespace rtrain::detail {

class GatheredWeights final : public WeightMemory {
public:
    /// Takes rank 0's values, a parameter at a time. *Collective.* Throws CommError [RT-X12].
    GatheredWeights(const Contents& of, std::vector<Unit> units, int slots)
        : WeightMemory(of), units_(std::move(units)), views_(of.parameters.size()) {
        const torch::NoGradGuard no_grad;
        lay_out_units();
        const std::size_t bytes = slot_bytes_ * static_cast<std::size_t>(slots);
        array_ = ranks_.allocate_array(
            bytes,
            {{0, bytes,
              "rtrain: a parameter of a sharded model was written in place [RT-M44]. It is a copy "
              "that the ranks of a node read: change it within model.edit(), and pass optimizers "
              "through worker.prepare()\n"}});
        std::vector<std::byte*> read;
        for (int slot = 0; slot < slots; ++slot) {
            read.push_back(array_.read + slot_bytes_ * static_cast<std::size_t>(slot));
        }
        gathering_ = ranks_.allocate_gathering(
            read.size(),
            UnitAllGather::Weights{
                [this](std::size_t unit, std::size_t slot) { return copies_in(unit, slot); },
                [this](std::size_t unit, std::size_t slot) { write_own(unit, slot); },
                [this](std::size_t unit) -> const std::string& { return units_[unit].name; }});
        on_use_.emplace(std::move(read), ranks_.device(), *gathering_);
        for (const Unit& unit : units_) {
            make_views(on_use_->add(unit.name, bytes_of_unit(unit)), unit);
            ::malloc_trim(0); // frees the ranks' previous copies
        }
    }

    [[nodiscard]] bool is_in_place(std::size_t parameter) const override {
        const at::Tensor& tensor = parameters_[parameter].tensor;
        return tensor.storage().is_alias_of(views_[parameter].storage()) &&
               tensor.storage_offset() == views_[parameter].storage_offset();
    }

    [[nodiscard]] bool gathers() const noexcept override { return true; }
    void rethrow_failure() const override { on_use_->rethrow_failure(); }

    void begin_pass() override { on_use_->begin_pass(); }
    [[nodiscard]] GatherCounts counts() const override { return on_use_->counts(); }

    void begin_step() override {
        rethrow_failure();
        on_use_->agree();
    }
    void end_step(const std::vector<std::size_t>& /*stepped*/) override { on_use_->release(); }

    void edit(const std::function<void()>& edit) override {
        const auto array = gather_all();
        succeed_together(backend_, [&] {
            if (owners_.place == 0) {
                const Opened opened(*this, array, array.write);
                edit();
            }
        });
        for (std::size_t i = 0; i < places_.size(); ++i) {
            at::Tensor whole = at_memory(array, array.write, i);
            at::Tensor flat = whole.as_strided({whole.numel()}, {1});
            if (!ranks_.have_one_copy() && flat.numel() > 0) {
                backend_.broadcast(flat, 0);
            }
            take_over(places_[i].part, own_elements(i, flat));
            round(i);
        }
        on_use_->release();
    }
    void read(const std::function<void()>& read) override {
        const auto array = gather_all();
        succeed_together(backend_, [&] {
            const Opened opened(*this, array, array.read);
            read();
        });
    }

private:
    /// Points the model's tensors at memory that has all weights, while it lives.
    class Opened {
    public:
        Opened(const GatheredWeights& weights, const WeightArray& array, std::byte* mapping)
            : weights_(weights) {
            weights_.point_at(array, mapping);
        }
        Opened(const Opened&) = delete;
        Opened& operator=(const Opened&) = delete;
        ~Opened() { weights_.point_at_units(); }

    private:
        const GatheredWeights& weights_;
    };

    void lay_out_units() {
        offsets_.resize(parameters_.size());
        for (const Unit& unit : units_) {
            std::size_t end = 0;
            for (const std::size_t i : unit.parameters) {
                offsets_[i] = end;
                end += room_of(i);
            }
            slot_bytes_ = std::max(slot_bytes_, end);
        }
    }
    [[nodiscard]] std::size_t bytes_of_unit(const Unit& unit) const {
        return offsets_[unit.parameters.back()] + bytes_of(unit.parameters.back());
    }

    /// Makes the parameters of a unit views of one storage; this rank keeps its parts.
    void make_views(const c10::Storage& storage, const Unit& unit) {
        for (const std::size_t i : unit.parameters) {
            Place& place = places_[i];
            keep_exactly(i, exact_part(i), [this, i] {
                round(i);
                on_use_->release();
            });
            if (parts_on_host_) {
                place.used = at::empty(place.part.sizes(),
                                       at::TensorOptions(ranks_.device()).dtype(place.type));
                round(i);
            }
            place.part.set_requires_grad(true);
            at::Tensor& view = views_[i];
            view = at::detail::make_tensor<c10::TensorImpl>(
                c10::Storage(storage),
                c10::DispatchKeySet(
                    c10::computeDispatchKey(place.type, std::nullopt, ranks_.device())),
                caffe2::TypeMeta::fromScalarType(place.type));
            view.unsafeGetTensorImpl()->set_sizes_and_strides(
                place.of.shape, place.of.strides,
                static_cast<std::int64_t>(offsets_[i] / c10::elementSize(place.type)));
            give_memory(i, view);
        }
    }
    void point_at_units() const {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            give_memory(i, views_[i]);
        }
    }

    /// The places of a unit's parameters in a slot.
    [[nodiscard]] std::vector<WeightCopy> copies_in(std::size_t unit, std::size_t slot) const {
        std::vector<WeightCopy> copies;
        for (const std::size_t i : units_[unit].parameters) {
            copies.push_back(copy_at(i, memory_of(slot) + offsets_[i]));
        }
        return copies;
    }
    void write_own(std::size_t unit, std::size_t slot) const {
        for (const std::size_t i : units_[unit].parameters) {
            write_part(i, memory_of(slot) + offsets_[i]);
        }
    }
    [[nodiscard]] std::byte* memory_of(std::size_t slot) const {
        return array_.write + slot_bytes_ * slot;
    }
    [[nodiscard]] WeightCopy copy_at(std::size_t index, std::byte* memory) const {
        const Place& place = places_[index];
        return {memory, place.slices, c10::elementSize(place.type)};
    }
    /// Copies this rank's part of a parameter to where the parameter is whole.
    void write_part(std::size_t index, std::byte* memory) const {
        const Place& place = places_[index];
        if (place.part.numel() > 0) {
            const at::Tensor whole =
                tensor_at(memory, {parameters_[index].tensor.numel()}, on_device(place.type));
            own_elements(index, whole).copy_(place.used.defined() ? place.used : place.part);
        }
    }
    [[nodiscard]] at::Tensor own_elements(std::size_t index, const at::Tensor& flat) const {
        return flat.narrow(0, places_[index].of.begin, elements_of_part(index));
    }
    /// Returns memory with all weights. *Collective.*
    [[nodiscard]] WeightArray gather_all() {
        const torch::NoGradGuard no_grad;
        rethrow_failure();
        auto array = allocate_whole();
        std::vector<WeightCopy> copies;
        for (std::size_t i = 0; i < places_.size(); ++i) {
            std::byte* const memory = array.write + places_[i].offset;
            write_part(i, memory);
            copies.push_back(copy_at(i, memory));
        }
        ranks_.exchange(copies);
        meet();
        return array;
    }

    std::vector<Unit> units_;
    std::vector<at::Tensor> views_;    ///< by parameter: of its unit's storage
    std::vector<std::size_t> offsets_; ///< by parameter: in its unit, in bytes
    std::size_t slot_bytes_ = 64;
    WeightArray array_; ///< the slots
    std::unique_ptr<UnitAllGather> gathering_;
    std::optional<GatherOnUse> on_use_;
};

} // namespace rtrain::detail
