// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door sampler.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/order/policy.hpp>
#include <rtrain/data/order/sampler.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace rtrain::data {

RTRAIN_DOOR at::Tensor distributed_order(const EpochRequest& epoch, std::int64_t taken) {
    if (epoch.rows <= 0) {
        throw DataError("RT-D7", "the data set is empty");
    }
    at::Tensor order;
    if (epoch.shuffle) {
        auto generator =
            at::detail::createCPUGenerator(epoch.seed + static_cast<std::uint64_t>(epoch.epoch));
        order = at::randperm(epoch.rows, generator, at::TensorOptions(at::kLong));
    } else {
        order = at::arange(epoch.rows, at::kLong);
    }
    const std::int64_t total = distributed_end(epoch, taken);
    if (total > epoch.rows) {
        const std::int64_t copies = (total + epoch.rows - 1) / epoch.rows;
        order = order.repeat({copies});
    }
    const std::int64_t begin = std::min(taken + epoch.rank, total);
    return order.slice(0, begin, total, epoch.size).contiguous();
}

} // namespace rtrain::data
