// SPDX-License-Identifier: Apache-2.0
/// @file
/// Custom communication hooks: how a bucket of gradients is reduced over ranks.
///
/// The smallest hook, equivalent to hook::None:
/// @code
/// struct Mean {
///     void reduce(rtrain::GradientBucket& bucket, rtrain::HookRanks& ranks) {
///         ranks.all_reduce(bucket.gradients, rtrain::ReduceOp::sum);
///     }
/// };
/// auto model = worker.prepare(Mlp{}, {.hook = rtrain::hook::Custom(Mean{})});
/// @endcode
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace rtrain {

/// One bucket that is being reduced.
struct GradientBucket {
    /// A parameter's part of the bucket.
    struct Part {
        std::string name;    ///< its name in the model
        at::Tensor gradient; ///< of the parameter's shape, memory of `gradients`
    };

    /// This rank's gradients divided by the number of ranks, one dimension, one type. A hook leaves
    /// the mean over ranks here, or its approximation: the same bits on all ranks.
    at::Tensor gradients;
    /// The bucket's number in the model; buckets come in this order in every pass. They change when
    /// a parameter that had never trained is unfrozen.
    std::size_t index = 0;
    std::vector<Part> parts; ///< the parameters' places in the bucket
};

/// Reduces a bucket in place; blocking. Called on all ranks for the same buckets in the same order.
/// A hook that keeps state between steps also has `void save(RankStateWriter&) const` and `void
/// load(const StateReader&)`: its state is then part of every checkpoint.
template <class H>
concept GradientHook = std::copy_constructible<H> &&
    requires(H& hook, GradientBucket& bucket, HookRanks& ranks) {
    hook.reduce(bucket, ranks);
};

/// Writes state, some of which differs between ranks.
class RankStateWriter : public StateWriter {
public:
    RankStateWriter(StateWriter out, HookRanks& ranks, bool by_rows)
        : StateWriter(std::move(out)), ranks_(ranks), by_rows_(by_rows) {}

    /// Saves this rank's tensor, of the same shape on all ranks. A StateReader returns those of all
    /// ranks under the name, stacked: (ranks that saved, ...). *Collective.*
    void own(const std::string& name, const at::Tensor& mine) {
        if (by_rows_) {
            rows(name, mine.unsqueeze(0), ranks_.rank(), ranks_.size());
        } else {
            tensor(name, ranks_.all_gather(mine));
        }
    }
    /// A writer for a part of this object.
    [[nodiscard]] RankStateWriter part(const std::string& name) const {
        return {StateWriter::part(name), ranks_, by_rows_};
    }

private:
    HookRanks& ranks_;
    bool by_rows_; ///< the checkpoint policy has each rank write its rows
};

namespace detail {

class AnyGradientHook {
public:
    AnyGradientHook() = default;
    AnyGradientHook(const AnyGradientHook&) = delete;
    AnyGradientHook& operator=(const AnyGradientHook&) = delete;
    virtual ~AnyGradientHook() = default;
    [[nodiscard]] virtual std::unique_ptr<AnyGradientHook> clone() const = 0;
    [[nodiscard]] virtual const char* name() const = 0;
    virtual void reduce(GradientBucket& bucket, HookRanks& ranks) = 0;
    virtual void save(RankStateWriter& out) const = 0;
    virtual void load(const StateReader& in) = 0;
};

template <class H>
class TheGradientHook final : public AnyGradientHook {
public:
    explicit TheGradientHook(H hook) : hook_(std::move(hook)) {}
    [[nodiscard]] std::unique_ptr<AnyGradientHook> clone() const override {
        return std::make_unique<TheGradientHook>(hook_);
    }
    [[nodiscard]] const char* name() const override { return typeid(H).name(); }
    void reduce(GradientBucket& bucket, HookRanks& ranks) override { hook_.reduce(bucket, ranks); }
    void save(RankStateWriter& out) const override {
        if constexpr (remembers) {
            hook_.save(out);
        }
    }
    void load(const StateReader& in) override {
        if constexpr (remembers) {
            hook_.load(in);
        }
    }

private:
    static constexpr bool remembers =
        requires(const H& saved, H& loaded, RankStateWriter& out, const StateReader& in) {
        saved.save(out);
        loaded.load(in);
    };
    H hook_;
};

} // namespace detail

namespace hook {

/// A custom hook: any GradientHook. Each prepared model has a copy.
class Custom {
public:
    template <class H>
    requires(!std::same_as<std::remove_cvref_t<H>, Custom>) explicit Custom(H hook) {
        static_assert(GradientHook<H>,
                      "rtrain: GradientHook not met: missing member `void reduce(GradientBucket&, "
                      "HookRanks&)`, or the hook cannot be copied [RT-H1]");
        if constexpr (GradientHook<H>) {
            hook_ = std::make_shared<detail::TheGradientHook<H>>(std::move(hook));
        }
    }
    /// Used by rtrain.
    [[nodiscard]] const detail::AnyGradientHook& get() const noexcept { return *hook_; }

private:
    std::shared_ptr<const detail::AnyGradientHook> hook_;
};

} // namespace hook
} // namespace rtrain
