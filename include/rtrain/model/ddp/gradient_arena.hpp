// SPDX-License-Identifier: Apache-2.0
/// @file
/// Places in shared memory in which libtorch allocates gradients, so that they need no copy.
///
/// Backward allocates a gradient like any other tensor, and makes it the parameter's gradient if
/// nothing else holds it. While backward runs, a request for as many bytes as a gradient that is
/// expected next gets that gradient's place. A wrong guess costs a copy, no more: a place is memory
/// like any other for the tensor that got it, and is not reused until that tensor is freed.
#pragma once

#include <rtrain/base/compiled.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Places of memory that outlives all tensors in it.
class ArenaMemory {
public:
    struct Place {
        std::byte* data = nullptr;
        std::size_t bytes = 0;
    };
    /// `owner` keeps the memory.
    ArenaMemory(std::vector<Place> places, std::vector<std::shared_ptr<void>> owners)
        : places_(std::move(places)), owners_(std::move(owners)), taken_(places_.size()) {}

    [[nodiscard]] const Place& place(std::size_t i) const { return places_[i]; }
    [[nodiscard]] bool is_taken(std::size_t i) const { return taken_[i]; }
    [[nodiscard]] bool any_taken() const {
        return std::find(taken_.begin(), taken_.end(), true) != taken_.end();
    }
    void take(std::size_t i) { taken_[i] = true; }
    /// In any thread. Returns false if no place begins there.
    bool release(const void* data) {
        for (std::size_t i = 0; i < places_.size(); ++i) {
            if (places_[i].data == data) {
                taken_[i] = false;
                return true;
            }
        }
        return false;
    }

private:
    std::vector<Place> places_;
    std::vector<std::shared_ptr<void>> owners_;
    std::vector<std::atomic<bool>> taken_;
};

/// One thread uses it at a time.
class GradientArena {
public:
    /// Smaller gradients are not worth it.
    static constexpr std::size_t least_bytes = std::size_t{1} << 16;
    /// A model's gradients are there if they need at most this much memory, in addition to buckets.
    /// In larger models, copies are a smaller part of a step.
    static constexpr std::size_t most_bytes = std::size_t{1} << 25;

    [[nodiscard]] static bool may_have(const at::Tensor& parameter) {
        return !parameter.is_cuda() && parameter.scalar_type() == at::kFloat &&
               parameter.nbytes() >= least_bytes && parameter.is_non_overlapping_and_dense();
    }

    struct Gradient {
        at::Tensor parameter;
        ArenaMemory::Place place;
    };
    /// `gradients` in the order in which backward is expected to compute them, in the first pass.
    GradientArena(const std::vector<Gradient>& gradients,
                  std::vector<std::shared_ptr<void>> owners);
    GradientArena(const GradientArena&) = delete;
    GradientArena& operator=(const GradientArena&) = delete;
    ~GradientArena();

    /// From now on, this thread's allocations get places; replaces another arena.
    static void enter(std::shared_ptr<GradientArena> arena);
    static void leave() { enter(nullptr); }

    /// A pass begins; those of `expected` take part.
    void begin();
    /// A gradient has been computed, wherever it is.
    void arrived(std::size_t gradient);

    /// Returns the place of the next gradient of this size, or null.
    [[nodiscard]] std::byte* allocate(std::size_t bytes);

private:
    /// Gradients of one size.
    struct Queue {
        std::size_t bytes = 0;
        std::vector<std::size_t> order;
        std::vector<std::size_t> arrivals; ///< of this pass
        std::size_t next = 0;              ///< in order
    };

    std::shared_ptr<ArenaMemory> memory_;
    std::vector<at::Tensor> parameters_;
    std::vector<Queue> queues_;
    std::vector<std::size_t> queue_of_; ///< by gradient
    std::vector<bool> has_arrived_;
};

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/model/ddp/gradient_arena_definitions.hpp>
#endif
