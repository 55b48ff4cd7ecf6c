// SPDX-License-Identifier: Apache-2.0
/// @file
/// FlopCount: floating-point operations of the first step of this process's training, from the
/// shapes of operators' arguments. Matrix products, convolutions and attention count, as in
/// torch.utils.flop_counter: all else is negligible.
#pragma once

#include <rtrain/model/profile/recorded_inputs.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/status/step_clock.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace rtrain::detail {

/// Operations of one call of an operator; 0 if it is not counted.
class OperatorFlops {
public:
    [[nodiscard]] static double of(std::string_view name, c10::ArrayRef<const c10::IValue> in) {
        const auto* const found = std::find_if(
            known.begin(), known.end(), [&](const Known& item) { return item.name == name; });
        return found == known.end() || in.size() < found->inputs ? 0 : found->count(in);
    }

private:
    using Inputs = c10::ArrayRef<const c10::IValue>;
    struct Known {
        std::string_view name;
        std::size_t inputs;
        double (*count)(Inputs);
    };

    [[nodiscard]] static double product(c10::IntArrayRef sizes, std::size_t from = 0) {
        double count = 1;
        for (std::size_t i = from; i < sizes.size(); ++i) {
            count *= static_cast<double>(sizes[i]);
        }
        return count;
    }
    [[nodiscard]] static c10::IntArrayRef sizes(const c10::IValue& value) {
        return value.isTensor() && value.toTensor().defined() ? value.toTensor().sizes()
                                                              : c10::IntArrayRef();
    }
    /// Matrix products, also batched: each row of the left with each column of the right.
    template <std::size_t Left>
    [[nodiscard]] static double matrices(Inputs in) {
        const auto right = sizes(in[Left + 1]);
        return right.empty() ? 0 : 2 * product(sizes(in[Left])) * static_cast<double>(right.back());
    }
    /// Applies the filter to each element of `out`: the output, or a transposed convolution's
    /// input.
    [[nodiscard]] static double convolution(const c10::IValue& out, const c10::IValue& weight) {
        const auto of_batch = sizes(out);
        const auto filter = sizes(weight);
        if (of_batch.size() < 3 || of_batch.size() != filter.size()) {
            return 0;
        }
        return 2 * static_cast<double>(of_batch[0]) * product(of_batch, 2) * product(filter);
    }
    /// input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    [[nodiscard]] static double convolution_forward(Inputs in) {
        const auto input = sizes(in[0]);
        const auto filter = sizes(in[1]);
        if (input.size() < 3 || input.size() != filter.size()) {
            return 0;
        }
        if (in[6].toBool()) {
            return convolution(in[0], in[1]);
        }
        const auto at = [](const c10::IValue& list, std::size_t i) {
            const auto values = list.toIntVector();
            return values.empty() ? 0 : values[std::min(i, values.size() - 1)];
        };
        auto places = static_cast<double>(input[0]);
        for (std::size_t i = 0; i + 2 < input.size(); ++i) {
            const std::int64_t reach = at(in[5], i) * (filter[i + 2] - 1) + 1;
            const std::int64_t steps = (input[i + 2] + 2 * at(in[4], i) - reach) / at(in[3], i);
            places *= static_cast<double>(steps + 1);
        }
        return 2 * places * product(filter);
    }
    /// grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed,
    /// output_padding, groups, output_mask
    [[nodiscard]] static double convolution_backward(Inputs in) {
        const double one = convolution(in[7].toBool() ? in[1] : in[0], in[2]);
        const auto wanted = in[10].toBoolList();
        return one * ((wanted.get(0) ? 1 : 0) + (wanted.get(1) ? 1 : 0));
    }
    /// Queries times keys, and the scores times values. `First`: the index of the queries.
    template <std::size_t First>
    [[nodiscard]] static double attention(Inputs in) {
        const auto query = sizes(in[First]);
        const auto key = sizes(in[First + 1]);
        const auto value = sizes(in[First + 2]);
        if (query.size() < 2 || key.size() < 2 || value.empty()) {
            return 0;
        }
        const auto keys = static_cast<double>(key[key.size() - 2]);
        const double rows = product(query) / static_cast<double>(query.back());
        return 2 * product(query) * keys + 2 * rows * keys * static_cast<double>(value.back());
    }
    /// Recomputes the scores, then three gradients and what they need: five products instead of
    /// two.
    [[nodiscard]] static double attention_backward(Inputs in) {
        constexpr double of_forward = 2.5;
        return of_forward * attention<1>(in);
    }

    static constexpr std::array known{
        Known{"aten::mm", 2, &matrices<0>},
        Known{"aten::bmm", 2, &matrices<0>},
        Known{"aten::addmm", 3, &matrices<1>},
        Known{"aten::baddbmm", 3, &matrices<1>},
        Known{"aten::convolution", 9, &convolution_forward},
        Known{"aten::convolution_backward", 11, &convolution_backward},
        Known{"aten::_scaled_dot_product_flash_attention_for_cpu", 3, &attention<0>},
        Known{"aten::_scaled_dot_product_flash_attention_for_cpu_backward", 4, &attention_backward},
        Known{"aten::_scaled_dot_product_flash_attention", 3, &attention<0>},
        Known{"aten::_scaled_dot_product_flash_attention_backward", 4, &attention_backward},
        Known{"aten::_scaled_dot_product_efficient_attention", 3, &attention<0>},
        Known{"aten::_scaled_dot_product_efficient_attention_backward", 4, &attention_backward}};
};

/// Counts from when it is made until a backward pass of a prepared model has ended. One at a time.
class FlopCount {
public:
    FlopCount() {
        clock_.begin_flops();
        callback_ = at::addGlobalCallback(at::RecordFunctionCallback(&FlopCount::entered)
                                              .needsInputs(true)
                                              .scopes({at::RecordScope::FUNCTION}));
    }
    FlopCount(const FlopCount&) = delete;
    FlopCount& operator=(const FlopCount&) = delete;
    ~FlopCount() { stop(); }

    /// Empty until the step has ended.
    [[nodiscard]] std::optional<double> of_first_step() {
        if (clock_.counts_flops()) {
            return std::nullopt;
        }
        stop();
        return clock_.flops();
    }

private:
    void stop() {
        if (callback_ != 0) {
            at::removeCallback(callback_);
            callback_ = 0;
        }
    }

    static std::unique_ptr<at::ObserverContext> entered(const at::RecordFunction& function) {
        StepClock& clock = ProcessContext::current().clock;
        const StepPart part = clock.part();
        const bool counts = (part == StepPart::forward && c10::GradMode::is_enabled()) ||
                            part == StepPart::backward;
        if (counts && clock.counts_flops()) {
            clock.add_flops(
                OperatorFlops::of(function.name(), inputs_of(RecordedInputs{}, function)));
        }
        return nullptr;
    }

    StepClock& clock_ = ProcessContext::current().clock;
    at::CallbackHandle callback_ = 0;
};

} // namespace rtrain::detail
