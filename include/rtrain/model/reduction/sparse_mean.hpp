// SPDX-License-Identifier: Apache-2.0
/// @file
/// The mean over ranks of a gradient that names only some rows, such as torch::nn::Embedding with
/// sparse(true) makes: ranks exchange the rows they have, not the whole table.
#pragma once

#include <rtrain/backend/any_backend.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <cstdint>
#include <unordered_set>
#include <vector>

namespace rtrain::detail {

/// The parameters whose modules produce sparse gradients.
[[nodiscard]] inline std::unordered_set<const void*>
parameters_with_sparse_gradients(const torch::nn::Module& root) {
    std::unordered_set<const void*> found;
    const auto look_at = [&found](const torch::nn::Module& module) {
        if (const auto* one = module.as<torch::nn::EmbeddingImpl>();
            one != nullptr && one->options.sparse()) {
            found.insert(one->weight.unsafeGetTensorImpl());
        } else if (const auto* bag = module.as<torch::nn::EmbeddingBagImpl>();
                   bag != nullptr && bag->options.sparse()) {
            found.insert(bag->weight.unsafeGetTensorImpl());
        }
    };
    look_at(root);
    for (const auto& module : root.modules(/*include_self=*/false)) {
        look_at(*module);
    }
    return found;
}

/// Concatenates the ranks' tensors, whose first dimension differs.
[[nodiscard]] inline at::Tensor gather_rows(HookRanks& backend, const at::Tensor& rows,
                                            const std::vector<std::int64_t>& counts) {
    auto shape = rows.sizes().vec();
    shape[0] = *std::max_element(counts.begin(), counts.end());
    at::Tensor padded = at::zeros(shape, rows.options());
    padded.narrow(0, 0, rows.size(0)).copy_(rows);
    const at::Tensor all = backend.all_gather(padded);
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < backend.size(); ++rank) {
        parts.push_back(all[rank].narrow(0, 0, counts[static_cast<std::size_t>(rank)]));
    }
    return at::cat(parts);
}

/// The sum over ranks of `gradient`, which may be sparse, dense, or undefined for none at all,
/// divided by `divisor`; `like` is its parameter. Sparse and coalesced, unless a rank has a dense
/// one. *Collective.*
[[nodiscard]] inline at::Tensor sparse_mean(HookRanks& backend, const at::Tensor& gradient,
                                            const at::Tensor& like, double divisor) {
    const int size = backend.size();
    const bool dense = gradient.defined() && !gradient.is_sparse();
    at::Tensor mine = gradient;
    if (!dense) {
        mine = gradient.defined()
                   ? gradient.coalesce()
                   : at::sparse_coo_tensor(like.sizes(), like.options().requires_grad(false))
                         .coalesce();
    }
    const at::Tensor note =
        at::tensor({dense ? std::int64_t{-1} : mine._nnz()}, at::TensorOptions(at::kLong));
    const at::Tensor notes = backend.all_gather(note).view({-1});
    const std::vector<std::int64_t> rows(notes.const_data_ptr<std::int64_t>(),
                                         notes.const_data_ptr<std::int64_t>() + size);
    if (notes.min().item<std::int64_t>() < 0) {
        at::Tensor sum = (dense ? mine : mine.to_dense()) / divisor;
        backend.all_reduce(sum, ReduceOp::sum);
        return sum;
    }
    if (notes.max().item<std::int64_t>() == 0) {
        return mine;
    }
    if (mine._nnz() == 0) { // of as many dimensions as what others have: rows of a table
        mine = at::sparse_coo_tensor(
            at::empty({1, 0}, like.options().dtype(at::kLong)),
            at::empty({0, like.size(1)}, mine.options().layout(at::kStrided)), like.sizes());
    }
    const at::Tensor indices = gather_rows(backend, mine._indices().t().contiguous(), rows);
    const at::Tensor values = gather_rows(backend, mine._values() / divisor, rows);
    return at::sparse_coo_tensor(indices.t(), values, like.sizes()).coalesce();
}

} // namespace rtrain::detail
