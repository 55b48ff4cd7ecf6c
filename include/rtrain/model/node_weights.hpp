// SPDX-License-Identifier: Apache-2.0
/// @file
/// Weights of which each node has a whole copy, or each rank. Parts lie in it, or where they are of
/// a wider type, beside it.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/model/synchronize.hpp>
#include <rtrain/model/weight_memory.hpp>

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
    /// Rank 0's values count. *Collective.* `steps_in_backward`: of which the pass is the step.
    NodeWeights(AnyBackend& backend, const std::vector<NamedParameter>& parameters,
                const std::vector<at::ScalarType>& types, bool shares, bool steps_in_backward)
        : WeightMemory(backend, parameters, types, shares), steps_in_backward_(steps_in_backward),
          rounded_(parameters.size()), array_(allocate_whole()) {
        const torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < parameters_.size() && backend_.rank() == 0; ++i) {
            at_memory(array_, array_->write(), i).copy_(parameters_[i].tensor);
        }
        if (owners_.nodes > 1 || !shares_) {
            spread();
        }
        backend_.barrier();
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            make_part(i);
        }
        point_at(array_, array_->read());
        ::malloc_trim(0); // what the ranks had of their own
    }

    [[nodiscard]] bool is_in_place(std::size_t parameter) const override {
        const at::Tensor& tensor = parameters_[parameter].tensor;
        return tensor.numel() == 0 ||
               tensor.const_data_ptr() == array_->read() + places_[parameter].offset;
    }

    [[nodiscard]] bool gathers() const noexcept override { return false; }

    void begin_step() override {
        if (!steps_in_backward_) {
            backend_.barrier();
        }
    }
    void round(std::size_t parameter) override {
        if (rounded_[parameter].defined()) {
            const torch::NoGradGuard no_grad;
            rounded_[parameter].copy_(places_[parameter].part);
        }
    }
    void end_step(const std::vector<std::size_t>& stepped) override {
        std::vector<WeightCopy> copies;
        for (const std::size_t i : stepped) {
            copies.push_back({array_->write() + places_[i].offset, places_[i].slices,
                              c10::elementSize(places_[i].type)});
        }
        exchange_.run(copies);
        backend_.barrier();
    }

    void edit(const std::function<void()>& edit) override {
        backend_.barrier();
        succeed_together(backend_, [&] {
            if (owners_.place == 0) {
                const Opened opened(*this);
                edit();
            }
        });
        if (!shares_) {
            spread();
        }
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (rounded_[i].defined()) {
                take_over(places_[i].part, rounded_[i]);
            }
        }
    }
    void read(const std::function<void()>& read) override { succeed_together(backend_, read); }

private:
    /// The model's tensors where they can be written, for as long as it lives.
    class Opened {
    public:
        explicit Opened(NodeWeights& weights) : weights_(weights) {
            weights_.point_at(weights_.array_, weights_.array_->write());
        }
        Opened(const Opened&) = delete;
        Opened& operator=(const Opened&) = delete;
        ~Opened() { weights_.point_at(weights_.array_, weights_.array_->read()); }

    private:
        NodeWeights& weights_;
    };

    void make_part(std::size_t index) {
        Place& place = places_[index];
        auto* const memory =
            array_->write() + place.offset +
            static_cast<std::size_t>(place.of.begin) * c10::elementSize(place.type);
        place.part = at::from_blob(
            memory, {elements_of_part(index)}, [array = array_](void* /*data*/) {},
            at::TensorOptions(place.type));
        if (place.type != parameters_[index].tensor.scalar_type()) {
            rounded_[index] = std::exchange(place.part, {});
            keep_exactly(index, exact_part(index));
        }
        place.part.set_requires_grad(true);
    }

    /// All copies become rank 0's. *Collective.*
    void spread() {
        std::vector<at::Tensor> values;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            values.push_back(at_memory(array_, array_->write(), i));
        }
        broadcast_coalesced(backend_, std::move(values)); // ranks that share one write the same
    }

    bool steps_in_backward_;
    std::vector<at::Tensor> rounded_; ///< where a part of another type goes in the array
    std::shared_ptr<comm::NodeArray> array_;
};

} // namespace rtrain::detail
