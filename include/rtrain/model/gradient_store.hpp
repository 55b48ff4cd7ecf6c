// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where a model's gradients go while backward brings them, and how they become means over ranks.
/// Which gradients are to come, and when a pass begins and ends, is the averager's affair
/// (gradient_averager.hpp); buckets that every rank holds (gradient_buckets.hpp) and shards, of
/// which each rank holds its own (gradient_shards.hpp), are two ways to keep them.
#pragma once

#include <rtrain/model/buckets.hpp>
#include <rtrain/model/hooks/gradient_hook.hpp>
#include <rtrain/model/options.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace rtrain::detail {

class GradientStore {
public:
    GradientStore() = default;
    GradientStore(const GradientStore&) = delete;
    GradientStore& operator=(const GradientStore&) = delete;
    virtual ~GradientStore() = default;

    /// Gives a place to each parameter that is `wanted` or had one before. *Collective.*
    virtual void lay_out(std::vector<bool> wanted) = 0;
    [[nodiscard]] virtual bool has_place(std::size_t parameter) const = 0;
    /// How many reductions a pass has.
    [[nodiscard]] virtual std::size_t size() const = 0;
    /// Whether passes under no_sync() go through it, too, and end with keep().
    [[nodiscard]] virtual bool keeps() const = 0;
    /// Whether ranks have whole parameters each in memory of its own, which could then differ.
    [[nodiscard]] virtual bool has_copies_of_parameters() const { return true; }
    /// By how much gradients are divided from now on: the number of ranks that have some, by the
    /// weight of this one's.
    virtual void divide_by(double divisor) = 0;
    [[nodiscard]] virtual double divisor() const = 0;

    /// What hooks remember between passes. Saving is *collective*.
    virtual void save(RankStateWriter& /*out*/) const {}
    virtual void load(const StateReader& /*in*/) {}

    /// A pass begins, in which every parameter that is `expected` and has a place fills it.
    virtual void begin(const std::vector<bool>& expected) = 0;
    /// Takes parameter.grad(), which is defined and dense. `syncs`: the pass ends with means, so
    /// that parameter.grad() may already be where its own will be.
    virtual void take(std::size_t parameter, bool syncs) = 0;
    /// parameter.grad() has what passes under no_sync() have brought, which do not go through it;
    /// more will be added there.
    virtual void accumulate(std::size_t /*parameter*/) {}
    virtual void put_zeros(std::size_t parameter) = 0;
    /// It is no longer expected; what it has of a gradient stays its own.
    virtual void leave(std::size_t parameter) = 0;

    /// Whether start_full() finds something to do; asked behind each gradient.
    [[nodiscard]] virtual bool has_started_or_full() const = 0;
    /// Begins to reduce what is full, in one order on all ranks, and goes on with what has begun.
    virtual void start_full() = 0;
    /// How many reductions are under way, or have been, since begin().
    [[nodiscard]] virtual std::size_t started() const = 0;
    /// Returns when what has been started holds means.
    virtual void wait() = 0;
    /// Instead of that, under no_sync().
    virtual void keep() = 0;

    /// Behind wait(): whether all means are finite, and whether one parameter's are, or hold NaN.
    /// The same on all ranks; may be *collective*.
    [[nodiscard]] virtual bool are_finite() = 0;
    [[nodiscard]] virtual bool is_finite(std::size_t parameter) = 0;
    [[nodiscard]] virtual bool holds_nan(std::size_t parameter) = 0;

    /// Behind wait(): gives who steps the parameter its mean. `used`: by some rank; else it stays
    /// what it was. A `sparse` one is parameter.grad() already.
    virtual void hand_out(std::size_t parameter, bool used, bool sparse) = 0;
    /// All are handed out. May be *collective*.
    virtual void end_pass() {}
    /// The memory of all gradients that have places, in few tensors.
    [[nodiscard]] virtual std::vector<at::Tensor> gradients() const = 0;
};

/// Makes a model's store; what it is given outlives it.
using MakeStore = std::function<std::unique_ptr<GradientStore>(
    const std::vector<NamedParameter>& parameters, const DataParallelOptions& options)>;

} // namespace rtrain::detail
