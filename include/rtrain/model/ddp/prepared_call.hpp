// SPDX-License-Identifier: Apache-2.0
/// @file
/// A call of a prepared model: by its handle, or of a method that runs like one.
#pragma once

#include <rtrain/model/amp/forward.hpp>
#include <rtrain/model/ddp/prepared_model.hpp>
#include <rtrain/process/status/user_call.hpp>

#include <torch/nn/module.h>

#include <type_traits>
#include <utility>

namespace rtrain::detail {

/// Runs `forward` with rank 0's buffers, under autocast, and timed; then `end(output)`, which says
/// where backward begins. Returns what `forward` returns.
template <class Forward, class End>
decltype(auto) call_prepared(PreparedModel& prepared, const torch::nn::Module& module,
                             Forward&& forward, const End& end) {
    const auto explained = [&]() -> decltype(auto) {
        try {
            return std::forward<Forward>(forward)();
        } catch (...) {
            prepared.explain_failure();
            throw;
        }
    };
    const UserCall::In in(UserCall::forward, prepared.next_pass());
    prepared.begin_forward();
    const auto& type = prepared.options().autocast;
    using Output = decltype(explained());
    if constexpr (std::is_void_v<Output>) {
        run_forward(type, module, explained);
        prepared.end_forward_without_tensors("void");
    } else if constexpr (std::is_object_v<Output>) {
        auto output = run_forward(type, module, explained);
        end(output);
        return output;
    } else {
        auto&& output = run_forward(type, module, explained);
        end(output);
        return static_cast<Output>(output);
    }
}

} // namespace rtrain::detail
