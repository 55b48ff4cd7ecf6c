// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that all ranks hold the same parameters, to the bit, by their checksums; and that
/// gradients of all still arrive.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/different_parameters.hpp>
#include <rtrain/model/parameters/buckets.hpp>
#include <rtrain/model/parameters/parameter_hook.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace rtrain::detail {

[[nodiscard]] inline std::int64_t checksum_of(const at::Tensor& tensor) {
    const at::Tensor bytes = tensor.detach().to(at::kCPU).contiguous();
    return checkpoint::sum_of_sums(bytes.const_data_ptr(), bytes.nbytes());
}

/// Computes the checksum of each parameter. Those on a device are copied to pinned memory, 64 MiB
/// at a time, so that the host waits once for many.
inline void checksums_of(const std::vector<NamedParameter>& parameters, std::int64_t* sums) {
    constexpr std::size_t most_bytes = std::size_t{64} << 20;
    std::vector<std::pair<std::size_t, at::Tensor>> copied;
    std::size_t bytes = 0;
    const auto finish = [&] {
        if (!copied.empty()) {
            const at::Device device = parameters[copied.front().first].tensor.device();
            const c10::impl::VirtualGuardImpl guard(device.type());
            guard.synchronizeStream(guard.getStream(device));
        }
        for (const auto& [i, copy] : copied) {
            sums[i] = checksum_of(copy);
        }
        copied.clear();
        bytes = 0;
    };
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor tensor = parameters[i].tensor.detach();
        if (!tensor.is_cuda()) {
            sums[i] = checksum_of(tensor);
            continue;
        }
        at::Tensor copy =
            at::empty(tensor.sizes(),
                      tensor.options().device(at::kCPU).layout(at::kStrided).pinned_memory(true));
        copied.emplace_back(i, copy.copy_(tensor, /*non_blocking=*/true));
        bytes += tensor.nbytes();
        if (bytes >= most_bytes) {
            finish();
        }
    }
    finish();
}

/// True if any thread can read their bytes in place.
[[nodiscard]] inline bool
can_be_read_beside_training(const std::vector<NamedParameter>& parameters) {
    return std::all_of(parameters.begin(), parameters.end(), [](const auto& parameter) {
        const at::Tensor& tensor = parameter.tensor;
        return tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_inference();
    });
}

/// Throws ModelError [RT-M25] on all ranks, naming the first parameter whose bits on some rank
/// differ from rank 0's. *Collective.*
inline void require_equal_parameters(HookRanks& backend,
                                     const std::vector<NamedParameter>& parameters) {
    at::Tensor mine = at::empty({static_cast<std::int64_t>(parameters.size())}, at::kLong);
    auto* const sums = mine.mutable_data_ptr<std::int64_t>();
    checksums_of(parameters, sums);
    const at::Tensor together = at::full({1}, checksum_of(mine), at::kLong);
    const at::Tensor short_sums = backend.all_gather(together).view({-1});
    if (short_sums.eq(short_sums[0]).all().item<bool>()) {
        return;
    }
    const at::Tensor all = backend.all_gather(mine);
    const at::Tensor differs = all.ne(all[0]); // by rank and parameter
    const at::Tensor by_parameter = differs.any(0);
    const auto first = by_parameter.nonzero()[0].item<std::int64_t>();
    const auto rank = differs.select(1, first).nonzero()[0].item<std::int64_t>();
    throw_different_parameters(parameters[static_cast<std::size_t>(first)].name,
                               static_cast<std::size_t>(rank),
                               by_parameter.sum().item().to<std::size_t>(), parameters.size());
}

/// Like require_equal_parameters(); with `later`, adds them to it instead where possible.
/// *Collective.*
inline void compare_parameters(HookRanks& backend, const std::vector<NamedParameter>& parameters,
                               checkpoint::Compared* later) {
    if (later == nullptr || !can_be_read_beside_training(parameters)) {
        require_equal_parameters(backend, parameters);
        return;
    }
    for (const auto& [name, parameter] : parameters) {
        later->emplace_back(name, parameter);
    }
}

/// Throws ModelError [RT-M23] when one of the hooks no longer gets gradients.
inline void require_connected(const std::vector<ParameterHook>& hooks,
                              const std::vector<NamedParameter>& parameters) {
    for (std::size_t i = 0; i < hooks.size(); ++i) {
        if (!hooks[i].is_connected()) {
            throw ModelError(
                "RT-M23",
                concat(
                    "another post-accumulate-grad hook was set on "
                    "parameter \"",
                    parameters[i].name,
                    "\", so its gradient would not be averaged; set that hook before prepare()"));
        }
    }
}

} // namespace rtrain::detail
