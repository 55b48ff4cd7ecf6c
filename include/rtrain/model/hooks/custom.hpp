// SPDX-License-Identifier: Apache-2.0
/// @file
/// A bucket that is reduced by a user's hook.
#pragma once

#include <rtrain/model/options/gradient_hook.hpp>
#include <rtrain/model/parameters/buckets.hpp>
#include <rtrain/model/reduction/bucket_reduction.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace rtrain::detail {

/// Blocks in start().
class CustomReduction final : public BucketReduction {
public:
    /// `hook` and `ranks` outlive this object.
    CustomReduction(AnyGradientHook& hook, HookRanks& ranks, const at::Tensor& memory,
                    const BucketPlan& plan, const std::vector<NamedParameter>& parameters)
        : hook_(hook), ranks_(ranks) {
        bucket_.gradients = memory;
        bucket_.index = plan.number;
        for (const auto& [index, offset] : plan.members) {
            bucket_.parts.push_back(
                {parameters[index].name, alias(memory, offset, parameters[index].tensor)});
        }
    }

    void start() override { hook_.reduce(bucket_, ranks_); }
    void poll() override {}
    void wait() override {}

private:
    AnyGradientHook& hook_;
    HookRanks& ranks_;
    GradientBucket bucket_;
};

} // namespace rtrain::detail
