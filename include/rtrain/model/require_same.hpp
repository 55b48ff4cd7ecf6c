// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether a number is the same on all ranks.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/backend/policy.hpp>
#include <rtrain/error.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace rtrain::detail {

/// Throws ModelError `code` on all ranks, with the text that `explain()` gives, unless `value` is
/// the same on all. Also when ranks are found to be elsewhere, in other collectives. *Collective.*
template <Backend B, class Explain>
void require_same(B& backend, const char* code, std::int64_t value, Explain&& explain) {
    try {
        const at::Tensor all = all_gather(backend, at::full({1}, value, at::kLong)).view({-1});
        if (all.eq(all[0]).all().template item<bool>()) {
            return;
        }
    } catch (const CommError& error) {
        if (error.code() != "RT-X10") {
            throw;
        }
        throw ModelError(code, concat(explain(), " (", error.message(), ")"));
    }
    throw ModelError(code, explain());
}

} // namespace rtrain::detail
