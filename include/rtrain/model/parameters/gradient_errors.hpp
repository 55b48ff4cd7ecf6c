// SPDX-License-Identifier: Apache-2.0
/// @file
/// Errors for missing and non-finite gradients, and for backward passes that ended early.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/parameters/buckets.hpp>
#include <rtrain/model/parameters/require_same.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace rtrain::detail {

/// Throws ModelError [RT-M3] for the parameters that are `expected` but were not `seen`.
[[noreturn]] inline void throw_unused(const std::vector<NamedParameter>& parameters,
                                      const std::vector<bool>& expected,
                                      const std::vector<bool>& seen, int rank) {
    constexpr std::size_t most_named = 5;
    std::string names;
    std::size_t unused = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (expected[i] && !seen[i] && ++unused <= most_named) {
            names += (names.empty() ? "\"" : ", \"") + parameters[i].name + "\"";
        }
    }
    if (unused > most_named) {
        names +=
            concat(" and ", unused - most_named, " other of ", parameters.size(), " parameters");
    }
    throw ModelError("RT-M3", concat("backward computed no gradient for ", names, " on rank ", rank,
                                     "; use these parameters in the loss, freeze them, or set "
                                     "find_unused_parameters. A parameter that was frozen takes "
                                     "part from the next forward on"));
}

/// Throws ModelError [RT-M21].
[[noreturn]] inline void throw_not_finite(const std::string& parameter, bool is_nan,
                                          std::int64_t passes) {
    throw ModelError("RT-M21",
                     concat("the averaged gradient of parameter \"", parameter, "\" holds ",
                            is_nan ? "NaN" : "an infinity", " after backward pass ", passes,
                            " since prepare(); no optimizer has used it. Check the loss and the "
                            "batch of this step, lower the learning rate or clip gradients; with a "
                            "GradScaler, turn check_gradients off"));
}

/// Throws ModelError [RT-M26] unless an exception has ended backward after as many reductions on
/// all ranks. *Collective.*
inline void require_cut_alike(AnyBackend& backend, std::int64_t started) {
    require_same(backend, "RT-M26", started, [] {
        return "an exception has ended a backward pass, but not on all ranks at the same place; "
               "let it leave the training function, and the run resumes from its newest "
               "checkpoint";
    });
}

} // namespace rtrain::detail
