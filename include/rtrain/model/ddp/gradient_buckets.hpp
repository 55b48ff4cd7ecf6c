// SPDX-License-Identifier: Apache-2.0
/// @file
/// The buckets of a model's gradients: which parameters have a place in which bucket, which
/// gradients have arrived, and which buckets are being reduced.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/crc32c.hpp>
#include <rtrain/model/ddp/clip_gradients.hpp>
#include <rtrain/model/ddp/gradient_store.hpp>
#include <rtrain/model/ddp/in_place_gradients.hpp>
#include <rtrain/model/hooks/select.hpp>
#include <rtrain/model/options/options.hpp>
#include <rtrain/model/parameters/buckets.hpp>
#include <rtrain/model/reduction/bucket_reduction.hpp>
#include <rtrain/model/reduction/filling_streams.hpp>
#include <rtrain/model/reduction/finite.hpp>
#include <rtrain/model/reduction/gradient_writer.hpp>
#include <rtrain/model/reduction/tree_sum.hpp>
#include <rtrain/process/status/collective_label.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::detail {

class GradientBuckets final : public GradientStore {
public:
    /// `backend` and `parameters` outlive this object. `model`: its name in messages.
    GradientBuckets(AnyBackend& backend, std::string model,
                    const std::vector<NamedParameter>& parameters,
                    const DataParallelOptions& options)
        : backend_(backend), model_(std::move(model)), options_(options), parameters_(parameters),
          by_tree_(options.reduction_order == ReductionOrder::micro_batches),
          divisor_(backend.size()), places_(parameters.size()) {
        if (const auto* custom = std::get_if<hook::Custom>(&options.hook)) {
            custom_ = custom->get().clone();
        }
    }

    void allocate(std::vector<bool> wanted) override {
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            wanted[i] = wanted[i] || has_place(i);
        }
        buckets_.clear();
        places_.assign(parameters_.size(), {});
        in_place_.clear();
        const bool in_place = options_.gradient_as_bucket_view && in_place_.fits(wanted);
        for (const auto& plan : plan_buckets(parameters_, wanted, options_)) {
            const CollectiveLabel purpose(name_of(plan, parameters_) + " in " + model_);
            Bucket bucket;
            if (by_tree_) {
                bucket.memory = backend_.make_bucket(plan.elements, plan.type);
                auto tree = std::make_unique<TreeReduction>(backend_, bucket.memory);
                bucket.tree = tree.get();
                bucket.reduction = std::move(tree);
            } else {
                auto hooked =
                    make_hooked_bucket(backend_, plan, parameters_, options_, custom_.get());
                bucket.memory = std::move(hooked.memory);
                bucket.reduction = std::move(hooked.reduction);
            }
            bucket.scale = scale_of(bucket.memory);
            if (in_place) {
                in_place_.add(*bucket.reduction, plan);
            }
            for (const auto& [index, offset] : plan.members) {
                places_[index].bucket = buckets_.size();
                places_[index].view = alias(bucket.memory, offset, parameters_[index].tensor);
                bucket.parameters.push_back(index);
            }
            buckets_.push_back(std::move(bucket));
        }
        in_place_.make_arena();
    }

    void divide_by(double divisor) override {
        if (std::exchange(divisor_, divisor) != divisor) {
            for (Bucket& bucket : buckets_) {
                bucket.scale = scale_of(bucket.memory);
            }
        }
    }
    [[nodiscard]] double divisor() const override { return divisor_; }

    void save(RankStateWriter& out) const override {
        if (!hooks_remember()) {
            return;
        }
        out.value("layout", layout());
        for (std::size_t i = 0; i < buckets_.size(); ++i) {
            auto part = out.part(std::to_string(i));
            buckets_[i].reduction->save(part);
        }
        if (custom_) {
            auto part = out.part("custom");
            custom_->save(part);
        }
    }
    /// Hooks start over where the checkpoint has a different bucket layout.
    void load(const StateReader& in) override {
        if (!hooks_remember() || !in.has_value("layout") ||
            in.value("layout").to_number<std::int64_t>() != layout()) {
            return;
        }
        for (std::size_t i = 0; i < buckets_.size(); ++i) {
            buckets_[i].reduction->load(in.part(std::to_string(i)));
        }
        if (custom_) {
            custom_->load(in.part("custom"));
        }
    }

    [[nodiscard]] std::size_t size() const override { return buckets_.size(); }
    [[nodiscard]] std::size_t started() const override { return next_; }
    [[nodiscard]] bool handles_no_sync() const override { return by_tree_; }
    [[nodiscard]] bool has_place(std::size_t parameter) const override {
        return places_[parameter].view.defined();
    }

    void enter_backward() override { in_place_.enter_backward(); }

    /// Skips buckets without an expected parameter.
    void begin(const std::vector<bool>& expected) override {
        for (Bucket& bucket : buckets_) {
            bucket.missing = 0;
            for (const std::size_t i : bucket.parameters) {
                bucket.missing += expected[i] ? 1U : 0U;
            }
            bucket.trains = bucket.missing > 0;
        }
        in_place_.begin();
        next_ = 0;
    }

    /// Fills a place with a gradient, divided immediately, while it is in cache; or leaves it where
    /// it is in the arena.
    void copy_in(std::size_t parameter, bool syncs) override {
        at::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
        Place& to = places_[parameter];
        Bucket& bucket = buckets_[to.bucket];
        in_place_.note(parameter);
        if (in_place_.take(parameter, bucket.scale)) {
            --bucket.missing;
            return;
        }
        writer_.scale_into(to.view, gradient, bucket.scale);
        bucket.filled.note(bucket.memory.device());
        --bucket.missing;
        if (!syncs) {
            gradient.reset(); // the next pass begins from nothing
        } else if (options_.gradient_as_bucket_view) {
            gradient = to.view;
        }
    }
    void accumulate(std::size_t parameter) override { in_place_.note(parameter); }
    void contribute_zeros(std::size_t parameter) override {
        places_[parameter].view.zero_();
        Bucket& bucket = buckets_[places_[parameter].bucket];
        bucket.filled.note(bucket.memory.device());
        --bucket.missing;
    }
    /// The place stays zero, whatever is reduced around it.
    void exclude(std::size_t parameter) override {
        if (!has_place(parameter)) {
            return;
        }
        if (holds_gradient(parameter)) {
            at::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
            gradient = gradient.clone();
        }
        places_[parameter].view.zero_();
    }

    [[nodiscard]] bool has_started_or_full() const override {
        return next_ > 0 || (next_ < buckets_.size() && buckets_[next_].missing == 0);
    }

    void launch_ready() override {
        for (std::size_t i = 0; i < next_; ++i) {
            if (buckets_[i].trains) {
                buckets_[i].reduction->poll();
            }
        }
        while (next_ < buckets_.size() && buckets_[next_].missing == 0) {
            Bucket& bucket = buckets_[next_++];
            if (bucket.trains) {
                bucket.filled.join();
                bucket.reduction->start();
                bucket.reduction->poll();
            }
        }
    }

    void wait() override {
        for (std::size_t i = 0; i < next_; ++i) {
            if (buckets_[i].trains) {
                buckets_[i].reduction->wait();
            }
        }
        in_place_.end();
    }

    /// With a tree: the contents of the places become a leaf of it.
    void end_no_sync_pass() override {
        for (Bucket& bucket : buckets_) {
            if (bucket.trains) {
                bucket.tree->keep();
            }
        }
    }

    [[nodiscard]] bool are_finite() override {
        return std::all_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) {
            const auto seen = bucket.reduction->finite();
            return !bucket.trains || (seen ? *seen : all_finite(bucket.memory));
        });
    }

    [[nodiscard]] bool is_finite(std::size_t parameter) override {
        return all_finite(mean(parameter));
    }
    [[nodiscard]] bool holds_nan(std::size_t parameter) override {
        return mean(parameter).isnan().any().item<bool>();
    }

    void finalize(std::size_t parameter, bool used, bool sparse) override {
        if (!used || sparse || in_place_.holds(parameter)) {
            return; // unused: it stays what it was; else: it is averaged already
        }
        at::Tensor& gradient = parameters_[parameter].tensor.mutable_grad();
        if (options_.gradient_as_bucket_view) {
            gradient = place(parameter);
        } else if (gradient.defined()) {
            gradient.copy_(place(parameter));
        } else {
            gradient = place(parameter).clone();
        }
    }

    /// One tensor per bucket, where all gradients of the bucket are in its memory on all ranks.
    [[nodiscard]] std::vector<at::Tensor> gradients() const override {
        std::vector<at::Tensor> memory;
        for (const Bucket& bucket : buckets_) {
            if (std::all_of(bucket.parameters.begin(), bucket.parameters.end(),
                            [this](std::size_t i) {
                                return holds_gradient(i) && !in_place_.may_hold(i);
                            })) {
                memory.push_back(bucket.memory);
                continue;
            }
            for (const std::size_t i : bucket.parameters) {
                add_gradient(memory, parameters_[i].tensor);
            }
        }
        return memory;
    }

private:
    struct Bucket {
        at::Tensor memory;                   ///< one dimension, one type
        at::Tensor scale;                    ///< factor for gradients on their way in
        std::vector<std::size_t> parameters; ///< those in the bucket
        std::size_t missing = 0;             ///< gradients that this backward has not computed yet
        bool trains = true;                  ///< a parameter in it is expected
        FillingStreams filled;               ///< by this backward
        std::unique_ptr<BucketReduction> reduction;
        TreeReduction* tree = nullptr; ///< `reduction`, if it is a tree
    };
    struct Place {
        std::size_t bucket = 0;
        at::Tensor view;
    };

    /// The parameter's place: its shape and strides, in its bucket's memory.
    [[nodiscard]] const at::Tensor& place(std::size_t parameter) const {
        return places_[parameter].view;
    }
    [[nodiscard]] const at::Tensor& mean(std::size_t parameter) const {
        return in_place_.holds(parameter) ? parameters_[parameter].tensor.grad() : place(parameter);
    }
    /// True if the parameter's gradient is that memory.
    [[nodiscard]] bool holds_gradient(std::size_t parameter) const {
        const at::Tensor& gradient = parameters_[parameter].tensor.grad();
        return gradient.defined() && !gradient.is_sparse() &&
               gradient.const_data_ptr() == place(parameter).const_data_ptr();
    }

    /// A tree divides by the number of ranks at its root.
    [[nodiscard]] at::Tensor scale_of(const at::Tensor& memory) const {
        return scale_for(by_tree_ ? divisor_ / backend_.size() : divisor_, memory.scalar_type());
    }

    [[nodiscard]] bool hooks_remember() const {
        return custom_ || std::holds_alternative<hook::PowerSgd>(options_.hook);
    }
    /// A checksum of the options and of which parameters have places: it identifies the bucket
    /// layout.
    [[nodiscard]] std::int64_t layout() const {
        std::string text = describe(options_);
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            text += has_place(i) ? parameters_[i].name + ' ' : "";
        }
        return checkpoint::crc32c(text);
    }

    AnyBackend& backend_;
    std::string model_;
    const DataParallelOptions& options_;
    const std::vector<NamedParameter>& parameters_;
    bool by_tree_;
    std::unique_ptr<AnyGradientHook> custom_;
    double divisor_;
    std::vector<Place> places_; ///< by parameter; undefined view: no place
    std::vector<Bucket> buckets_;
    std::size_t next_ = 0; ///< the first bucket that is not being reduced
    GradientWriter writer_;
    InPlaceGradients in_place_{parameters_};
};

} // namespace rtrain::detail
