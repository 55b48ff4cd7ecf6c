// SPDX-License-Identifier: Apache-2.0
/// @file
/// Creates buckets from options: memory where it is reduced best, and the reduction that the
/// options select.
#pragma once

#include <rtrain/model/hooks/custom.hpp>
#include <rtrain/model/hooks/half.hpp>
#include <rtrain/model/hooks/power_sgd.hpp>
#include <rtrain/model/options/options.hpp>
#include <rtrain/model/parameters/buckets.hpp>
#include <rtrain/model/reduction/bucket_reduction.hpp>

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::detail {

struct HookedBucket {
    at::Tensor memory; ///< one dimension, zeros
    std::unique_ptr<BucketReduction> reduction;
};

/// Buckets of complex numbers and types of two bytes are never compressed by rtrain's hooks.
/// `custom` is the model's copy of the user's hook, if the options have one; it outlives the
/// bucket.
/// *Collective.*
[[nodiscard]] inline HookedBucket make_hooked_bucket(AnyBackend& backend, const BucketPlan& plan,
                                                     const std::vector<NamedParameter>& parameters,
                                                     const DataParallelOptions& options,
                                                     AnyGradientHook* custom) {
    const Hook& hook = options.hook;
    const auto type = c10::typeMetaToScalarType(plan.type.dtype());
    const bool wide = type == at::kFloat || type == at::kDouble;
    if (const auto half = half_type(hook); wide && half) {
        at::Tensor memory = at::zeros({plan.elements}, plan.type);
        return {memory, std::make_unique<HalfReduction>(backend, memory, *half)};
    }
    at::Tensor memory = backend.make_bucket(plan.elements, plan.type);
    if (custom != nullptr) {
        return {memory,
                std::make_unique<CustomReduction>(*custom, backend, memory, plan, parameters)};
    }
    if (const auto* power = std::get_if<hook::PowerSgd>(&hook); power != nullptr && wide) {
        PowerSgdPlan parts(memory, plan, parameters, *power);
        if (!parts.matrices.empty()) {
            return {memory, std::make_unique<PowerSgdReduction>(backend, memory, std::move(parts),
                                                                *power, plan.number)};
        }
    }
    return {memory, std::make_unique<PlainReduction>(backend, memory, options.check_gradients)};
}

} // namespace rtrain::detail
