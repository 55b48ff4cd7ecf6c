// SPDX-License-Identifier: Apache-2.0
/// @file
/// The layout of parameters in flat buckets: in reverse order of registration, because backward
/// reaches the last layer first (PyTorch DDP, Li et al., VLDB 2020, section 3.2.3), one element
/// type and device in each.
#pragma once

#include <rtrain/model/options/options.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rtrain {

/// A parameter and its name in its module.
struct NamedParameter {
    std::string name;
    at::Tensor tensor;
};

namespace detail {

/// The layout of one bucket, without memory.
struct BucketPlan {
    struct Member {
        std::size_t parameter = 0;
        std::int64_t offset = 0; ///< in elements
    };
    at::TensorOptions type;
    std::int64_t elements = 0;
    std::vector<Member> members;
    std::size_t number = 0; ///< among the buckets of the model
};

/// `wanted`: by parameter, whether it gets a place.
[[nodiscard]] inline std::vector<BucketPlan>
plan_buckets(const std::vector<NamedParameter>& parameters, const std::vector<bool>& wanted,
             const DataParallelOptions& options) {
    std::vector<BucketPlan> plans;
    for (std::size_t i = parameters.size(); i-- > 0;) {
        if (!wanted[i]) {
            continue;
        }
        const at::Tensor& parameter = parameters[i].tensor;
        const auto type = parameter.options().requires_grad(false);
        const std::int64_t limit =
            plans.size() <= 1 ? options.first_bucket_bytes : options.bucket_bytes;
        const bool fits =
            !plans.empty() && plans.back().type.dtype() == type.dtype() &&
            plans.back().type.device() == type.device() &&
            plans.back().elements * static_cast<std::int64_t>(parameter.element_size()) < limit;
        if (!fits) {
            plans.push_back({.type = type, .members = {}, .number = plans.size()});
        }
        plans.back().members.push_back({i, plans.back().elements});
        plans.back().elements += parameter.numel();
    }
    return plans;
}

/// Names a bucket in messages.
[[nodiscard]] inline std::string name_of(const BucketPlan& plan,
                                         const std::vector<NamedParameter>& parameters) {
    const std::string& first = parameters[plan.members.front().parameter].name;
    const std::string& last = parameters[plan.members.back().parameter].name;
    return "gradients of \"" + first + (plan.members.size() > 1 ? "\" to \"" + last : "") + "\"";
}

/// A tensor of `like`'s shape over a bucket's memory. Not a view in autograd's eyes, so that
/// zero_grad(), which detaches gradients in place, works on it.
[[nodiscard]] inline at::Tensor alias(const at::Tensor& memory, std::int64_t offset,
                                      const at::Tensor& like) {
    auto* const data = memory.slice(0, offset).data_ptr(); // null where no elements are left
    const auto strides = like.is_non_overlapping_and_dense()
                             ? like.strides().vec()
                             : at::empty_like(like, at::MemoryFormat::Contiguous).strides().vec();
    return at::from_blob(
        data, like.sizes(), strides, [memory](void* /*data*/) {}, memory.options(),
        memory.device());
}

} // namespace detail
} // namespace rtrain
