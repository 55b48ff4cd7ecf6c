// SPDX-License-Identifier: Apache-2.0
/// @file
/// Mixed precision: running a part of the program, or a model's forward, under torch's autocast.
#pragma once

#include <rtrain/base/error.hpp>

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <torch/nn/module.h>

#include <array>
#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain {

/// While it lives, this thread computes matrix products, convolutions and the like in a 16-bit
/// type, and what needs the range or precision in float32, as `torch.autocast` in Python does.
/// Parameters and their gradients stay float32. Leave it before `backward()`.
///
/// bfloat16 has float32's range; float16 does not, and needs a GradScaler. Throws ModelError
/// [RT-M17] for other types.
///
/// `prepare(model, {.autocast = at::kBFloat16})` runs forward under it.
class Autocast {
public:
    explicit Autocast(at::ScalarType type, at::DeviceType device = at::kCPU)
        : device_(device), enabled_before_(at::autocast::is_autocast_enabled(device)),
          type_before_(at::autocast::get_autocast_dtype(device)) {
        if (type != at::kBFloat16 && type != at::kHalf) {
            throw ModelError("RT-M17", detail::concat("autocast computes in BFloat16 or Half, not ",
                                                      c10::toString(type)));
        }
        forget_if_changed(type);
        at::autocast::set_autocast_dtype(device, type);
        at::autocast::set_autocast_enabled(device, true);
        at::autocast::increment_nesting();
    }
    Autocast(const Autocast&) = delete;
    Autocast& operator=(const Autocast&) = delete;
    ~Autocast() {
        if (at::autocast::decrement_nesting() == 0) {
            at::autocast::clear_cache(); // of parameters in 16 bits: the next step changes them
        }
        forget_if_changed(at::autocast::get_autocast_dtype(device_));
        at::autocast::set_autocast_enabled(device_, enabled_before_);
        at::autocast::set_autocast_dtype(device_, type_before_);
    }

private:
    /// torch finds a parameter in its cache whatever type it was converted to.
    void forget_if_changed(at::ScalarType type) const {
        if (enabled_before_ && type != type_before_) {
            at::autocast::clear_cache();
        }
    }

    at::DeviceType device_;
    bool enabled_before_;
    at::ScalarType type_before_;
};

namespace detail {

/// This thread's autocast, to run something under it again later.
class AutocastState {
public:
    AutocastState() : caches_(at::autocast::is_autocast_cache_enabled()) {
        for (std::size_t i = 0; i < devices.size(); ++i) {
            enabled_[i] = at::autocast::is_autocast_enabled(devices[i]);
            types_[i] = at::autocast::get_autocast_dtype(devices[i]);
        }
    }

    void enter() const {
        at::autocast::set_autocast_cache_enabled(caches_);
        for (std::size_t i = 0; i < devices.size(); ++i) {
            at::autocast::set_autocast_enabled(devices[i], enabled_[i]);
            at::autocast::set_autocast_dtype(devices[i], types_[i]);
        }
    }

private:
    static constexpr std::array devices{at::kCPU, at::kCUDA};

    bool caches_;
    std::array<bool, devices.size()> enabled_{};
    std::array<at::ScalarType, devices.size()> types_{};
};

/// While it lives, this thread's autocast is that of `state`, with a cache of its own.
class AutocastAs {
public:
    explicit AutocastAs(const AutocastState& state) {
        at::autocast::clear_cache();
        state.enter();
        at::autocast::increment_nesting();
    }
    AutocastAs(const AutocastAs&) = delete;
    AutocastAs& operator=(const AutocastAs&) = delete;
    ~AutocastAs() {
        at::autocast::decrement_nesting();
        at::autocast::clear_cache();
        before_.enter();
    }

private:
    AutocastState before_;
};

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_tuple = false;
template <class... Parts>
inline constexpr bool is_tuple<std::tuple<Parts...>> = true;

/// What a model returned, with 16-bit tensors, also in vectors and tuples, in float32: losses are
/// then computed in float32. Anything else as it is.
template <class T>
[[nodiscard]] T in_float32(T value) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
        return value.defined() && at::isReducedFloatingType(value.scalar_type())
                   ? value.to(at::kFloat)
                   : value;
    } else if constexpr (is_vector<T>) {
        for (auto&& part : value) {
            part = in_float32(std::move(part));
        }
        return value;
    } else if constexpr (is_tuple<T>) {
        return std::apply([](auto&... parts) { return T(in_float32(std::move(parts))...); }, value);
    } else {
        return value;
    }
}

/// Visits what in_float32() converts.
template <class T, class Visit>
void each_tensor_of(const T& value, const Visit& visit) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
        visit(value);
    } else if constexpr (is_vector<T>) {
        for (const auto& part : value) {
            each_tensor_of(part, visit);
        }
    } else if constexpr (is_tuple<T>) {
        std::apply([&](const auto&... parts) { (each_tensor_of(parts, visit), ...); }, value);
    }
}

/// Runs the module's forward, under autocast when `type` is given.
template <class Forward>
decltype(auto) run_forward(const std::optional<at::ScalarType>& type,
                           const torch::nn::Module& module, Forward&& forward) {
    if constexpr (std::is_object_v<std::invoke_result_t<Forward>>) {
        if (type) {
            const Autocast autocast(*type, module.parameters().front().device().type());
            return in_float32(forward());
        }
    }
    return forward();
}

} // namespace detail
} // namespace rtrain
