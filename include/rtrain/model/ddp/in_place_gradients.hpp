// SPDX-License-Identifier: Apache-2.0
/// @file
/// The gradients of a model that backward allocates in memory of the node (gradient_arena.hpp), and
/// that ranks reduce there instead of in buckets.
#pragma once

#include <rtrain/comm/node/bucket_pieces.hpp>
#include <rtrain/model/ddp/gradient_arena.hpp>
#include <rtrain/model/parameters/buckets.hpp>
#include <rtrain/model/parameters/faster_way.hpp>
#include <rtrain/model/reduction/bucket_reduction.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::detail {

class InPlaceGradients {
public:
    /// `parameters` outlives this object.
    explicit InPlaceGradients(const std::vector<NamedParameter>& parameters)
        : parameters_(parameters), places_(parameters.size()) {}

    void clear() {
        places_.assign(parameters_.size(), {});
        gradients_.clear();
        owners_.clear();
        arena_ = nullptr;
    }
    /// True if the `wanted` parameters' gradients need little enough memory.
    [[nodiscard]] bool fits(const std::vector<bool>& wanted) const {
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const at::Tensor& parameter = parameters_[i].tensor;
            bytes += wanted[i] && GradientArena::may_have(parameter) ? parameter.nbytes() : 0;
        }
        return bytes <= GradientArena::most_bytes;
    }
    /// Gives the large gradients of a bucket places, if the other ranks can read them there.
    /// *Collective.*
    void add(BucketReduction& bucket, const BucketPlan& plan) {
        std::vector<comm::Piece> pieces;
        std::vector<std::size_t> owners;
        for (const auto& [index, offset] : plan.members) {
            const at::Tensor& parameter = parameters_[index].tensor;
            if (GradientArena::may_have(parameter)) {
                pieces.push_back({offset, parameter.numel()});
                owners.push_back(index);
            }
        }
        const auto memory = pieces.empty() ? nullptr : bucket.make_pieces(std::move(pieces));
        if (memory == nullptr) {
            return;
        }
        for (std::size_t i = 0; i < owners.size(); ++i) {
            const at::Tensor& parameter = parameters_[owners[i]].tensor;
            places_[owners[i]] = {memory, i, gradients_.size(), false};
            gradients_.push_back({parameter, {memory->mine(i), parameter.nbytes()}});
        }
        owners_.push_back(memory);
    }
    /// After the last bucket.
    void make_arena() {
        arena_ =
            gradients_.empty() ? nullptr : std::make_shared<GradientArena>(gradients_, owners_);
    }

    /// Backward has begun in this thread.
    void enter_backward() {
        if (arena_ == nullptr) {
            return;
        }
        faster_.begin();
        if (faster_.way() == in_place) {
            arena_->begin();
            GradientArena::enter(arena_);
        }
    }
    /// A pass begins.
    void begin() {
        for (Place& place : places_) {
            if (std::exchange(place.is_used, false)) {
                place.memory->use(place.piece, 0);
            }
        }
    }
    /// Backward has computed a gradient.
    void note(std::size_t parameter) {
        if (const Place& place = places_[parameter]; place.memory) {
            arena_->arrived(place.number);
        }
    }
    /// True if the gradient is in its place, where reductions then find it, and multiply it by
    /// `factor`, a scalar.
    [[nodiscard]] bool take(std::size_t parameter, const at::Tensor& factor) {
        Place& place = places_[parameter];
        const at::Tensor& tensor = parameters_[parameter].tensor;
        const at::Tensor& gradient = tensor.grad();
        if (place.memory == nullptr || *factor.const_data_ptr<float>() == 0 ||
            gradient.const_data_ptr() != place.memory->mine(place.piece) ||
            gradient.scalar_type() != tensor.scalar_type() ||
            gradient.strides() != tensor.strides()) {
            return false;
        }
        place.memory->use(place.piece, *factor.const_data_ptr<float>());
        place.is_used = true;
        return true;
    }
    /// True if reductions find the parameter's gradient in its place.
    [[nodiscard]] bool holds(std::size_t parameter) const { return places_[parameter].is_used; }
    /// True on all ranks alike, wherever each of them has the gradient.
    [[nodiscard]] bool may_hold(std::size_t parameter) const {
        return places_[parameter].memory != nullptr;
    }
    /// All reductions of a pass have ended.
    void end() { faster_.end(); }

private:
    struct Place {
        std::shared_ptr<comm::BucketPieces> memory;
        std::size_t piece = 0;  ///< of its bucket
        std::size_t number = 0; ///< in the arena
        bool is_used = false;   ///< in this pass
    };

    /// Ways of a pass. To read gradients in place is slower than to copy them where ranks have
    /// separate caches.
    static constexpr std::size_t in_place = 0;

    const std::vector<NamedParameter>& parameters_;
    std::vector<Place> places_; ///< by parameter
    std::vector<GradientArena::Gradient> gradients_;
    std::vector<std::shared_ptr<void>> owners_;
    std::shared_ptr<GradientArena> arena_; ///< null if no gradient has a place
    FasterWay faster_;
};

} // namespace rtrain::detail
