// SPDX-License-Identifier: Apache-2.0
/// @file
/// Errors after which ranks may be at different steps. Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/process/context.hpp>

namespace rtrain {

/// Throws `error`, which ends the attempt even if the training function catches it.
template <class E>
[[noreturn]] void throw_for_good(const E& error) {
    ProcessContext::current().attempt.fail(detail::failure_of(error));
    throw error;
}

} // namespace rtrain
