// SPDX-License-Identifier: Apache-2.0
/// @file
/// ReductionOrder::micro_batches: gradients added up in one binary tree, however it is divided
/// among ranks.
///
/// A rank holds the leaves of whole subtrees, its passes, so it can add them up alone; the ranks'
/// sums are the leaves of the tree's upper part. Which additions are made then depends on the
/// number of micro-batches and not on that of ranks, as long as each has a power of two of them.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/model/reduction/bucket_reduction.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Sums consecutive tensors in a binary tree: as in a binary counter, level k holds the sum of 2^k
/// of them. n tensors need the memory of log2(n).
class TreeSum {
public:
    /// Adds the tensor's values; overwrites it.
    void add(at::Tensor& leaf) {
        std::size_t level = 0;
        for (; (held_ >> level & 1) != 0; ++level) {
            leaf.add_(levels_[level]);
        }
        if (level == levels_.size()) {
            levels_.push_back(at::empty_like(leaf));
        }
        levels_[level].copy_(leaf);
        ++held_;
    }

    /// Adds all stored sums to the last leaf, and clears them.
    void finish(at::Tensor& leaf) {
        for (; held_ != 0; held_ &= held_ - 1) {
            leaf.add_(levels_[static_cast<std::size_t>(std::countr_zero(held_))]);
        }
    }

private:
    std::vector<at::Tensor> levels_;
    std::uint64_t held_ = 0; ///< bit k: level k is in use
};

/// Sums the bucket over passes and ranks, then divides by the number of ranks. Blocks in start().
class TreeReduction : public BucketReduction {
public:
    TreeReduction(AnyBackend& backend, at::Tensor memory)
        : backend_(backend), memory_(std::move(memory)) {}

    /// Adds the bucket, as one pass's gradients, to the sum of the next start().
    void keep() { passes_.add(memory_); }

    void start() override {
        passes_.finish(memory_);
        if (backend_.size() == 1) {
            return;
        }
        const at::Tensor sums = backend_.all_gather(memory_);
        for (int step = 1; step < backend_.size(); step *= 2) {
            for (int rank = 0; rank + step < backend_.size(); rank += 2 * step) {
                sums[rank].add_(sums[rank + step]);
            }
        }
        at::mul_out(memory_, sums[0], at::scalar_tensor(1.0 / backend_.size(), sums.options()));
    }
    void poll() override {}
    void wait() override {}

private:
    AnyBackend& backend_;
    at::Tensor memory_;
    TreeSum passes_;
};

} // namespace rtrain::detail
