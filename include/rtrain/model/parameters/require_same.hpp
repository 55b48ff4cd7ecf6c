// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that a number is the same on all ranks.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/error.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

namespace rtrain::detail {

/// Throws ModelError `code` on all ranks, with the text of `explain()`, unless `value` is the same
/// on all; also when ranks are in different collectives. *Collective.*
inline void require_same(HookRanks& backend, ModelError::Code code, std::int64_t value,
                         const std::function<std::string()>& explain) {
    try {
        const at::Tensor all = backend.all_gather(at::full({1}, value, at::kLong)).view({-1});
        if (all.eq(all[0]).all().item<bool>()) {
            return;
        }
    } catch (const CommError& error) {
        if (!error.is("RT-X10")) {
            throw;
        }
        throw ModelError(code, concat(explain(), " (", error.message(), ")"));
    }
    throw ModelError(code, explain());
}

} // namespace rtrain::detail
