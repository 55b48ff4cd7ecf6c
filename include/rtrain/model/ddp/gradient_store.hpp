// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stores a model's gradients while backward computes them, and reduces them to means over ranks.
/// The reducer (reducer.hpp) decides which gradients are expected, and when a pass
/// begins and ends. Gradients are kept in buckets that every rank holds (gradient_buckets.hpp), or
/// in shards, of which each rank holds its own (gradient_shards.hpp).
#pragma once

#include <rtrain/model/options/gradient_hook.hpp>
#include <rtrain/model/options/options.hpp>
#include <rtrain/model/parameters/buckets.hpp>
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
    virtual void allocate(std::vector<bool> wanted) = 0;
    [[nodiscard]] virtual bool has_place(std::size_t parameter) const = 0;
    /// The number of reductions in a pass.
    [[nodiscard]] virtual std::size_t size() const = 0;
    /// True if passes under no_sync() also go through the store, and end with keep().
    [[nodiscard]] virtual bool handles_no_sync() const = 0;
    /// True if each rank has whole parameters in separate memory, which could then differ.
    [[nodiscard]] virtual bool has_copies_of_parameters() const { return true; }
    /// Sets the divisor of gradients: the number of ranks that have some, divided by the weight of
    /// this rank's.
    virtual void divide_by(double divisor) = 0;
    [[nodiscard]] virtual double divisor() const = 0;

    /// Saves what hooks keep between passes. Saving is *collective*.
    virtual void save(RankStateWriter& /*out*/) const {}
    virtual void load(const StateReader& /*in*/) {}

    /// Backward has begun in this thread, and will compute gradients.
    virtual void enter_backward() {}
    /// Begins a pass, in which every `expected` parameter with a place fills it.
    virtual void begin(const std::vector<bool>& expected) = 0;
    /// Takes parameter.grad(), which is defined and dense. `syncs`: the pass ends with means, so
    /// parameter.grad() may already become the memory of its mean.
    virtual void copy_in(std::size_t parameter, bool syncs) = 0;
    /// parameter.grad() has accumulated passes under no_sync() that do not go through the store;
    /// more will be added there.
    virtual void accumulate(std::size_t /*parameter*/) {}
    virtual void contribute_zeros(std::size_t parameter) = 0;
    /// The parameter is no longer expected; it handles_no_sync its gradient.
    virtual void exclude(std::size_t parameter) = 0;

    /// True if launch_ready() has something to do; checked after each gradient.
    [[nodiscard]] virtual bool has_started_or_full() const = 0;
    /// Starts to reduce what is full, in the same order on all ranks, and polls what has been
    /// started.
    virtual void launch_ready() = 0;
    /// The number of reductions started since begin().
    [[nodiscard]] virtual std::size_t started() const = 0;
    /// Blocks until all started reductions hold means.
    virtual void wait() = 0;
    /// Called instead of wait() under no_sync().
    virtual void end_no_sync_pass() = 0;

    /// After wait(): true if all means are finite; if one parameter's are; if they hold NaN. The
    /// same on all ranks; may be *collective*.
    [[nodiscard]] virtual bool are_finite() = 0;
    [[nodiscard]] virtual bool is_finite(std::size_t parameter) = 0;
    [[nodiscard]] virtual bool holds_nan(std::size_t parameter) = 0;

    /// After wait(): sets the gradient to its mean, where the parameter is stepped. `used`: by some
    /// rank; else the gradient stays unchanged. A `sparse` mean is in parameter.grad() already.
    virtual void finalize(std::size_t parameter, bool used, bool sparse) = 0;
    /// Called when all are handed out. May be *collective*.
    virtual void end_pass() {}
    /// The memory of all gradients that have places, in few tensors.
    [[nodiscard]] virtual std::vector<at::Tensor> gradients() const = 0;
};

/// Creates a model's store; its arguments outlive it.
using MakeStore = std::function<std::unique_ptr<GradientStore>(
    const std::vector<NamedParameter>& parameters, const DataParallelOptions& options)>;

} // namespace rtrain::detail
