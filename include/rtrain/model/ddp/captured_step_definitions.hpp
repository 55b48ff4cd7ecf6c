// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/model/ddp/captured_step.hpp>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <functional>
#include <string>

namespace rtrain::detail {

RTRAIN_DOOR StepRecorder::StepRecorder(AnyBackend& backend) : graph_(backend.make_graph()) {}

RTRAIN_DOOR void StepRecorder::call(const Tensors& inputs,
                                    const std::function<void(const Tensors&)>& step) {
    if (Recording::current() != nullptr) {
        throw_not_capturable("it calls another captured step");
    }
    if (!graph_) {
        step(inputs);
        return;
    }
    take(inputs);
    // Warm-up before recording: buckets, the optimizer's state and NCCL's connections are created,
    // and kernels are chosen.
    constexpr int warm_up = 3;
    if (calls_++ < warm_up) {
        graph_->run([&] { step(inputs_); });
        return;
    }
    if (!recording_) {
        record([&] { step(inputs_); });
    }
    recording_->replay([this] { graph_->replay(); });
}

/// Copies inputs to where the graph reads them.
RTRAIN_DOOR void StepRecorder::take(const Tensors& inputs) {
    const c10::NoGradGuard no_grad;
    if (calls_ == 0) {
        for (const at::Tensor& input : inputs) {
            inputs_.push_back(at::empty_like(input));
        }
    }
    for (std::size_t i = 0; i < inputs_.size() || i < inputs.size(); ++i) {
        const auto text = [i](const Tensors& tensors) {
            return i >= tensors.size() ? std::string("missing")
                                       : concat(tensors[i].scalar_type(), tensors[i].sizes(),
                                                " on ", tensors[i].device().str());
        };
        const std::string given = text(inputs);
        if (given != text(inputs_)) {
            throw ModelError("RT-M71", concat("input ", i, " of the captured step is ", given,
                                              ", and was ", text(inputs_),
                                              " in the first call; a graph has fixed shapes: drop "
                                              "the last, smaller batch (BatchOptions::drop_last), "
                                              "or call the step itself for it"));
        }
        inputs_[i].copy_(inputs[i], /*non_blocking=*/true);
    }
}

RTRAIN_DOOR void StepRecorder::record(const std::function<void()>& step) {
    auto recording = std::make_unique<Recording>();
    try {
        const Recording::Scope scope(*recording);
        graph_->record(step);
    } catch (const c10::Error& error) {
        throw_not_capturable(
            concat(error.what_without_backtrace(),
                   "; move what waits for the device or copies from the CPU out of the step: "
                   "item(), printing, GradScaler, check_gradients, find_unused_parameters"));
    }
    recording->end();
    recording_ = std::move(recording);
}

} // namespace rtrain::detail
