// SPDX-License-Identifier: Apache-2.0
/// @file
/// The hook PowerSgd: gradient matrices are sent as the product of two thin ones (Vogels,
/// Karimireddy, Jaggi: PowerSGD, NeurIPS 2019, algorithms 1 and 2).
#pragma once

#include <rtrain/model/options/options.hpp>
#include <rtrain/model/parameters/buckets.hpp>
#include <rtrain/model/reduction/bucket_reduction.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// An orthonormal basis of the columns' span, also where columns are dependent or zero.
[[nodiscard]] inline at::Tensor orthonormal(const at::Tensor& columns) {
    return std::get<0>(at::linalg_qr(columns));
}

/// The parts of a bucket that PowerSGD compresses, and those that it leaves as they are.
struct PowerSgdPlan {
    std::vector<at::Tensor> matrices; ///< two-dimensional, in the bucket's memory
    std::vector<at::Tensor> rest;     ///< one-dimensional, in the bucket's memory

    PowerSgdPlan(const at::Tensor& memory, const BucketPlan& plan,
                 const std::vector<NamedParameter>& parameters, const hook::PowerSgd& options) {
        for (const auto& [index, offset] : plan.members) {
            const at::Tensor& parameter = parameters[index].tensor;
            const at::Tensor part = memory.slice(0, offset, offset + parameter.numel());
            const std::int64_t rows = rows_in_memory(alias(memory, offset, parameter));
            const std::int64_t columns = rows == 0 ? 0 : parameter.numel() / rows;
            const std::int64_t rank = std::min({rows, columns, options.rank});
            const auto sent = static_cast<double>((rows + columns) * rank);
            if (parameter.dim() > 1 &&
                sent * options.min_compression_rate < static_cast<double>(parameter.numel())) {
                matrices.push_back(part.view({rows, columns}));
            } else {
                rest.push_back(part);
            }
        }
    }

private:
    /// Size of the dimension with the largest stride; the first, unless a parameter is transposed.
    static std::int64_t rows_in_memory(const at::Tensor& tensor) {
        std::int64_t rows = 0;
        std::int64_t stride = -1;
        for (std::int64_t i = 0; i < tensor.dim(); ++i) {
            if (tensor.stride(i) > stride) {
                stride = tensor.stride(i);
                rows = tensor.size(i);
            }
        }
        return rows;
    }
};

/// For each matrix M, with thin matrices P and Q: P = sum of M Q over ranks, made orthonormal;
/// Q = sum of M' P; M becomes P Q'. As M is divided by the number of ranks, that approximates the
/// mean.
class PowerSgdReduction : public BucketReduction {
public:
    PowerSgdReduction(AnyBackend& backend, at::Tensor memory, PowerSgdPlan plan,
                      const hook::PowerSgd& options, std::uint64_t bucket)
        : options_(options), rank_(backend.rank()), ranks_(backend.size()),
          memory_(std::move(memory)), plan_(std::move(plan)),
          exact_(backend.make_reduction(memory_)),
          first_memory_(backend.make_bucket(elements_first(), memory_.options())),
          second_memory_(backend.make_bucket(elements_second(), memory_.options())),
          first_(backend.make_reduction(first_memory_)),
          second_(backend.make_reduction(second_memory_)),
          random_(at::make_generator<at::CPUGeneratorImpl>(options.seed + bucket)) {
        std::int64_t first = 0;
        std::int64_t second = 0;
        for (const at::Tensor& matrix : plan_.matrices) {
            const std::int64_t rank = rank_of(matrix);
            thin_.push_back({take(first_memory_, first, matrix.size(0), rank),
                             take(second_memory_, second, matrix.size(1), rank),
                             options_.use_error_feedback ? at::zeros_like(matrix) : at::Tensor()});
        }
        rest_ = first_memory_.slice(0, first);
    }

    void start() override {
        exact_now_ = iteration_++ < options_.start_iteration;
        if (exact_now_) {
            exact_->start();
            return;
        }
        for (std::size_t i = 0; i < thin_.size(); ++i) {
            at::Tensor& matrix = plan_.matrices[i];
            auto& [p, q, error] = thin_[i];
            if (error.defined()) {
                matrix.add_(error);
            }
            if (!warm_) {
                q.copy_(at::randn(q.sizes(), random_, q.options().device(at::kCPU)));
            }
            at::mm_out(p, matrix, orthonormal(q));
        }
        if (!plan_.rest.empty()) {
            at::cat_out(rest_, plan_.rest);
        }
        first_->start();
    }

    void poll() override { exact_now_ ? exact_->poll() : first_->poll(); }

    void wait() override {
        if (exact_now_) {
            exact_->wait();
            return;
        }
        first_->wait();
        std::int64_t offset = 0;
        for (at::Tensor& part : plan_.rest) {
            part.copy_(rest_.slice(0, offset, offset + part.numel()));
            offset += part.numel();
        }
        for (std::size_t i = 0; i < thin_.size(); ++i) {
            auto& [p, q, error] = thin_[i];
            p.copy_(orthonormal(p));
            at::mm_out(q, plan_.matrices[i].t(), p);
        }
        second_->start();
        second_->wait();
        for (std::size_t i = 0; i < thin_.size(); ++i) {
            approximate(plan_.matrices[i], thin_[i]);
        }
        // One step with infinite gradients, as a gradient scaler tries them, must not permanently
        // affect the start of later steps.
        at::nan_to_num_(second_memory_, 0, 0, 0);
        warm_ = options_.warm_start;
    }

    void save(RankStateWriter& out) const override {
        out.value("iteration", iteration_);
        out.value("warm", warm_);
        out.tensor("q", second_memory_);
        out.tensor("random", random_.get_state());
        if (options_.use_error_feedback) {
            out.own("error", errors());
        }
    }
    /// Errors saved by a different number of ranks are spread evenly.
    void load(const StateReader& in) override {
        iteration_ = in.value("iteration").to_number<std::int64_t>();
        warm_ = in.value("warm").as_bool();
        second_memory_.copy_(in.tensor("q"));
        random_.set_state(in.tensor("random").clone());
        if (!options_.use_error_feedback) {
            return;
        }
        const at::Tensor all = in.tensor("error");
        const at::Tensor mine = all.size(0) == ranks_ ? all[rank_] : all.sum(0) / ranks_;
        std::int64_t offset = 0;
        for (Thin& thin : thin_) {
            thin.error.copy_(mine.narrow(0, offset, thin.error.numel()).view_as(thin.error));
            offset += thin.error.numel();
        }
    }

private:
    struct Thin {
        at::Tensor p;
        at::Tensor q;
        at::Tensor error; ///< of earlier steps' approximations, divided by the number of ranks
    };

    [[nodiscard]] std::int64_t rank_of(const at::Tensor& matrix) const {
        return std::min({matrix.size(0), matrix.size(1), options_.rank});
    }
    [[nodiscard]] std::int64_t elements_first() const {
        std::int64_t elements = 0;
        for (const at::Tensor& matrix : plan_.matrices) {
            elements += matrix.size(0) * rank_of(matrix);
        }
        for (const at::Tensor& part : plan_.rest) {
            elements += part.numel();
        }
        return elements;
    }
    [[nodiscard]] std::int64_t elements_second() const {
        std::int64_t elements = 0;
        for (const at::Tensor& matrix : plan_.matrices) {
            elements += matrix.size(1) * rank_of(matrix);
        }
        return elements;
    }
    /// All errors, in one dimension.
    [[nodiscard]] at::Tensor errors() const {
        std::vector<at::Tensor> flat;
        for (const Thin& thin : thin_) {
            flat.push_back(thin.error.view({-1}));
        }
        return at::cat(flat);
    }
    static at::Tensor take(const at::Tensor& memory, std::int64_t& offset, std::int64_t rows,
                           std::int64_t columns) {
        const std::int64_t begin = offset;
        offset += rows * columns;
        return memory.slice(0, begin, offset).view({rows, columns});
    }

    void approximate(at::Tensor& matrix, Thin& thin) const {
        if (thin.error.defined()) {
            thin.error.copy_(matrix);
        }
        at::mm_out(matrix, thin.p, thin.q.t());
        if (thin.error.defined()) {
            thin.error.sub_(matrix, 1.0 / ranks_).nan_to_num_(0, 0, 0);
        }
    }

    hook::PowerSgd options_;
    int rank_;
    int ranks_;
    at::Tensor memory_;
    PowerSgdPlan plan_;
    std::unique_ptr<AnyCollective> exact_;
    at::Tensor first_memory_;  ///< all P, then what is not compressed
    at::Tensor second_memory_; ///< all Q
    std::unique_ptr<AnyCollective> first_;
    std::unique_ptr<AnyCollective> second_;
    at::Generator random_; ///< the same numbers on all ranks
    std::vector<Thin> thin_;
    at::Tensor rest_;
    std::int64_t iteration_ = 0;
    bool exact_now_ = true;
    bool warm_ = false; ///< Q holds the previous step's
};

} // namespace rtrain::detail
