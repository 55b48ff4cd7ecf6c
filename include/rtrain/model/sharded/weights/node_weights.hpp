// SPDX-License-Identifier: Apache-2.0
/// @file
/// Weights of which each node, or each rank, has a whole copy. Parts are views of it, or separate
/// memory where they are of a wider type.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/model/parameters/synchronize.hpp>
#include <rtrain/model/sharded/weights/weight_memory.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <malloc.h>

namespace rtrain::detail {

class NodeWeights final : public WeightMemory {
public:
    /// Takes rank 0's values. *Collective.* `steps_in_backward`: backward makes the step.
    NodeWeights(const Contents& of, bool steps_in_backward)
        : WeightMemory(of), steps_in_backward_(steps_in_backward), array_(allocate_whole()) {
        const torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < parameters_.size() && backend_.rank() == 0; ++i) {
            at_memory(array_, array_.write, i).copy_(parameters_[i].tensor);
        }
        if (!ranks_.have_one_copy()) {
            spread();
        }
        meet();
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            make_part(i);
        }
        point_at(array_, array_.read);
        ::malloc_trim(0); // frees the ranks' previous copies
    }

    [[nodiscard]] bool is_in_place(std::size_t parameter) const override {
        const at::Tensor& tensor = parameters_[parameter].tensor;
        return tensor.numel() == 0 ||
               tensor.const_data_ptr() == array_.read + places_[parameter].offset;
    }

    [[nodiscard]] bool gathers() const noexcept override { return false; }

    void begin_step() override {
        if (!steps_in_backward_) {
            meet();
        }
    }
    void end_step(const std::vector<std::size_t>& stepped) override {
        std::vector<WeightCopy> copies;
        for (const std::size_t i : stepped) {
            copies.push_back({array_.write + places_[i].offset, places_[i].slices,
                              c10::elementSize(places_[i].type)});
        }
        ranks_.exchange(copies);
        meet();
    }

    void edit(const std::function<void()>& edit) override {
        meet();
        succeed_together(backend_, [&] {
            if (owners_.place == 0) {
                const Opened opened(*this);
                edit();
            }
        });
        if (!ranks_.have_one_copy()) {
            spread();
        }
        for (const Place& place : places_) {
            if (place.used.defined()) {
                take_over(place.part, place.used);
            }
        }
    }
    void read(const std::function<void()>& read) override { succeed_together(backend_, read); }

private:
    /// Makes the model's tensors writable while it lives.
    class Opened {
    public:
        explicit Opened(NodeWeights& weights) : weights_(weights) {
            weights_.point_at(weights_.array_, weights_.array_.write);
        }
        Opened(const Opened&) = delete;
        Opened& operator=(const Opened&) = delete;
        ~Opened() { weights_.point_at(weights_.array_, weights_.array_.read); }

    private:
        NodeWeights& weights_;
    };

    void make_part(std::size_t index) {
        Place& place = places_[index];
        auto* const memory =
            array_.write + place.offset +
            static_cast<std::size_t>(place.of.begin) * c10::elementSize(place.type);
        place.part = tensor_at(memory, {elements_of_part(index)}, on_device(place.type),
                               std::nullopt, array_.owner);
        if (parts_on_host_ || place.type != parameters_[index].tensor.scalar_type()) {
            place.used = std::exchange(place.part, {});
            keep_exactly(index, exact_part(index));
        }
        place.part.set_requires_grad(true);
    }

    /// Overwrites all copies with rank 0's. *Collective.*
    void spread() {
        std::vector<at::Tensor> values;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            values.push_back(at_memory(array_, array_.write, i));
        }
        broadcast_coalesced(backend_, std::move(values)); // ranks that share a copy write the same
    }

    bool steps_in_backward_;
    WeightArray array_;
};

} // namespace rtrain::detail
