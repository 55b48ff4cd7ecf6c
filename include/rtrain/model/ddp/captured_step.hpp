// SPDX-License-Identifier: Apache-2.0
/// @file
/// CapturedStep: a step of the training loop that a GPU replays from one graph.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/compiled.hpp>
#include <rtrain/model/parameters/recording.hpp>

#include <ATen/core/Tensor.h>

#include <any>
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain {

namespace detail {

/// The untyped part of CapturedStep.
class StepRecorder {
public:
    using Tensors = std::vector<at::Tensor>;

    explicit StepRecorder(AnyBackend& backend);

    /// Calls `step`, records it, or replays it.
    void call(const Tensors& inputs, const std::function<void(const Tensors&)>& step);

private:
    void take(const Tensors& inputs);
    void record(const std::function<void()>& step);

    std::unique_ptr<comm::DeviceGraph> graph_; ///< null: each call runs the step itself
    std::unique_ptr<Recording> recording_;     ///< once it is recorded
    Tensors inputs_;                           ///< what the graph reads
    int calls_ = 0;
};

} // namespace detail

/// The result of worker.capture(). Lives at most as long as the training function.
template <class Step>
class CapturedStep {
public:
    CapturedStep(std::shared_ptr<detail::AnyBackend> backend, Step step)
        : backend_(std::move(backend)), step_(std::move(step)), recorder_(*backend_) {}

    /// Returns what the step returns; tensors in it are overwritten by the next call. Inputs have
    /// the shapes, types and device of the first call. Throws ModelError: RT-M70 if the step cannot
    /// be captured, RT-M71 for different inputs, RT-M72 if something has changed since.
    template <std::same_as<at::Tensor>... Inputs>
    requires std::invocable<Step&, const Inputs&...>
    auto operator()(const Inputs&... inputs) {
        return call(std::index_sequence_for<Inputs...>(), {inputs...});
    }

private:
    template <std::size_t... Is>
    auto call(std::index_sequence<Is...> /*numbers*/, const detail::StepRecorder::Tensors& inputs) {
        using Tensors = detail::StepRecorder::Tensors;
        using Returned = decltype(step_(inputs[Is]...));
        if constexpr (std::is_void_v<Returned>) {
            recorder_.call(inputs, [this](const Tensors& given) { step_(given[Is]...); });
        } else {
            recorder_.call(inputs, [this](const Tensors& given) { result_ = step_(given[Is]...); });
            return std::any_cast<Returned>(result_);
        }
    }

    std::shared_ptr<detail::AnyBackend> backend_;
    Step step_;
    std::any result_; ///< of the recorded call; each replay overwrites it
    detail::StepRecorder recorder_;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/model/ddp/captured_step_definitions.hpp>
#endif
