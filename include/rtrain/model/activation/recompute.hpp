// SPDX-License-Identifier: Apache-2.0
/// @file
/// Training with less memory: `rtrain::recompute(f, x...)` keeps no activations of f for backward,
/// which recomputes them.
///
/// After PyTorch's non-reentrant torch.utils.checkpoint: autograd saves tensors through hooks, and
/// those that f saves are dropped. When backward needs the first of them, f runs again, up to the
/// last one that is needed. The graph stays that of the first pass, so gradients are computed in
/// the same order, in one backward, with the same bits.
#pragma once

#include <rtrain/base/compiled.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain {

namespace detail {

/// Runs f on given tensors.
using RunOn = std::function<void(const std::vector<at::Tensor>&)>;

/// Calls `first`, which runs f and returns the tensors of its result. Tensors that autograd saves
/// meanwhile are dropped, and recomputed by `again` on the same `inputs`.
void recompute_region(const std::vector<at::Tensor>& inputs, RunOn again,
                      const std::function<std::vector<at::Tensor>()>& first);

template <class T>
inline constexpr bool holds_tensors = std::is_same_v<T, at::Tensor>;
template <class T>
inline constexpr bool holds_tensors<std::vector<T>> = holds_tensors<T>;
template <class T>
inline constexpr bool holds_tensors<std::optional<T>> = holds_tensors<T>;
template <class... Parts>
inline constexpr bool holds_tensors<std::tuple<Parts...>> = (holds_tensors<Parts> || ...);
template <class A, class B>
inline constexpr bool holds_tensors<std::pair<A, B>> = holds_tensors<A> || holds_tensors<B>;

/// Visits each tensor in a tensor, or in vectors, optionals, tuples and pairs of them.
template <class T, class Visit>
void visit_tensors(T& value, const Visit& visit) {
    using Plain = std::remove_const_t<T>;
    if constexpr (std::is_same_v<Plain, at::Tensor>) {
        visit(value);
    } else if constexpr (holds_tensors<Plain>) {
        if constexpr (requires { value.has_value(); }) {
            if (value) {
                visit_tensors(*value, visit);
            }
        } else if constexpr (requires { value.begin(); }) {
            for (auto& part : value) {
                visit_tensors(part, visit);
            }
        } else {
            std::apply([&](auto&... parts) { (visit_tensors(parts, visit), ...); }, value);
        }
    }
}

/// A function and its arguments, apart from the tensors.
template <class F, class... X>
class Recomputable {
public:
    using Result = std::invoke_result_t<F&, X...>;

    template <class G, class... Y>
    explicit Recomputable(G&& f, Y&&... x) : f_(std::forward<G>(f)), x_(std::forward<Y>(x)...) {}

    /// Moves the tensors out of the arguments.
    [[nodiscard]] std::vector<at::Tensor> take_tensors() {
        std::vector<at::Tensor> tensors;
        visit_tensors(x_,
                      [&](at::Tensor& tensor) { tensors.push_back(std::exchange(tensor, {})); });
        return tensors;
    }

    [[nodiscard]] Result operator()(const std::vector<at::Tensor>& tensors) {
        std::tuple<X...> x = x_;
        auto next = tensors.begin();
        visit_tensors(x, [&](at::Tensor& tensor) { tensor = *next++; });
        return std::apply(
            [this](X&... parts) -> Result { return std::invoke(f_, std::move(parts)...); }, x);
    }

private:
    F f_;
    std::tuple<X...> x_;
};

} // namespace detail

/// f(x...), whose activations are dropped and recomputed in backward: less memory for a second run
/// of f. Loss and gradients have the same bits as without.
///
/// f is kept until backward has completed, so a lambda captures by value what it needs later;
/// modules are shared anyway. f gets copies of x..., and must do the same when it is called again.
/// Random numbers and autocast are those of the first pass. In-place writes to outside state, such
/// as batch norm's running statistics, take effect once. f may call recompute() and autograd
/// itself; backward may keep and create graphs. Without gradients (NoGradGuard), this is a plain
/// call. Returns a value, not a reference.
///
/// Backward throws ModelError: RT-M30 when f saves different tensors than in the first pass, RT-M31
/// when a tensor that f uses has been edited in place since. Throws ModelError [RT-M32] in a
/// process with another autograd engine, such as Python's.
///
/// @code
/// for (const auto& block : *blocks) {
///     x = rtrain::recompute([block](torch::Tensor x) { return block->as<Block>()->forward(x); },
///     x);
/// }
/// @endcode
template <class F, class... X>
requires std::invocable < std::decay_t<F>
&, std::decay_t<X>... > &&(std::copy_constructible<std::decay_t<X>>&&...) &&
       (!std::is_void_v<std::invoke_result_t<std::decay_t<F>&, std::decay_t<X>...>>)
           [[nodiscard]] auto recompute(F&& f, X&&... x) {
    using Call = detail::Recomputable<std::decay_t<F>, std::decay_t<X>...>;
    using Value = std::decay_t<typename Call::Result>;
    const auto call = std::make_shared<Call>(std::forward<F>(f), std::forward<X>(x)...);
    const std::vector<at::Tensor> inputs = call->take_tensors();
    if (!c10::GradMode::is_enabled()) {
        return Value((*call)(inputs));
    }
    std::optional<Value> result;
    detail::recompute_region(
        inputs, [call](const std::vector<at::Tensor>& tensors) { (void)(*call)(tensors); },
        [&] {
            result.emplace((*call)(inputs));
            std::vector<at::Tensor> outputs;
            detail::visit_tensors(*result,
                                  [&](const at::Tensor& tensor) { outputs.push_back(tensor); });
            return outputs;
        });
    return *std::move(result);
}

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/model/activation/recompute_definitions.hpp>
#endif
