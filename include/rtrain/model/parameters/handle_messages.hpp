// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages about how a model is called: without its handle, or with outputs that hold no tensors.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>

#include <string>

namespace rtrain::detail {

/// Throws ModelError [RT-M61].
[[noreturn]] inline void throw_without_autocast(const std::string& model) {
    throw ModelError("RT-M61", concat("a model (", model,
                                      ") was prepared with autocast, but its forward() was called "
                                      "without the handle, so it ran in float32; call the handle "
                                      "itself, model(x) instead of model->forward(x)"));
}

/// [RT-M62]
inline void warn_of_no_tensors(const std::string& model, const char* type, int rank) {
    if (rank == 0) {
        console::warn(
            "RT-M62: forward() of %s returns %s, in which rtrain finds no tensor: outputs "
            "keep the type that autocast gives them, and time/backward, FLOPs and the "
            "progress of a step are unknown; return tensors, aggregates of up to 16 "
            "members, pairs, tuples, optionals or containers of them, or give the class a "
            "member each_tensor(visit)",
            model.c_str(), type);
    }
}

} // namespace rtrain::detail
