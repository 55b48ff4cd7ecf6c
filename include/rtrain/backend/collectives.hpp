// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collectives that work on every backend, on values as well as tensors: built on what the concept
/// requires, and on a backend's own where it has one.
#pragma once

#include <rtrain/backend/policy.hpp>
#include <rtrain/error.hpp>
#include <rtrain/exception_text.hpp>
#include <rtrain/rank_prefix.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::detail {

/// The tensors of all ranks, stacked: shape (size, *tensor.sizes()).
template <Backend B>
[[nodiscard]] at::Tensor all_gather(B& backend, const at::Tensor& tensor) {
    if constexpr (requires { backend.all_gather(tensor); }) {
        return backend.all_gather(tensor);
    } else {
        std::vector<std::int64_t> shape = tensor.sizes().vec();
        shape.insert(shape.begin(), backend.size());
        at::Tensor gathered = at::zeros(shape, tensor.options());
        gathered.select(0, backend.rank()).copy_(tensor);
        backend.all_reduce(gathered, ReduceOp::sum); // x + 0 + ... + 0 is x
        return gathered;
    }
}

/// Row rank() of the reduction of a tensor of shape (size, ...).
template <Backend B>
[[nodiscard]] at::Tensor reduce_scatter(B& backend, const at::Tensor& tensor, ReduceOp op) {
    if constexpr (requires { backend.reduce_scatter(tensor, op); }) {
        return backend.reduce_scatter(tensor, op);
    } else {
        at::Tensor copy = tensor.clone();
        backend.all_reduce(copy, op);
        return copy[backend.rank()];
    }
}

template <Backend B>
void barrier(B& backend) {
    if constexpr (requires { backend.barrier(); }) {
        backend.barrier();
    } else {
        (void)all_gather(backend, at::zeros({1}, at::kByte));
    }
}

/// A byte tensor that holds `text`.
[[nodiscard]] inline at::Tensor to_bytes(std::string_view text) {
    at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
    if (!text.empty()) {
        std::memcpy(bytes.data_ptr(), text.data(), text.size());
    }
    return bytes;
}

[[nodiscard]] inline std::string to_string(const at::Tensor& bytes) {
    return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

/// Rank `root`'s text on all ranks.
template <Backend B>
[[nodiscard]] std::string broadcast(B& backend, const std::string& text, int root) {
    if (backend.size() == 1) {
        return text;
    }
    at::Tensor length = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong);
    backend.broadcast(length, root);
    at::Tensor bytes = backend.rank() == root
                           ? to_bytes(text)
                           : at::empty({length.template item<std::int64_t>()}, at::kByte);
    backend.broadcast(bytes, root);
    return to_string(bytes);
}

/// Each rank's text, indexed by rank.
template <Backend B>
[[nodiscard]] std::vector<std::string> all_gather(B& backend, const std::string& text) {
    const at::Tensor lengths =
        all_gather(backend, at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong));
    at::Tensor padded = at::zeros({lengths.max().template item<std::int64_t>()}, at::kByte);
    padded.slice(0, 0, static_cast<std::int64_t>(text.size())).copy_(to_bytes(text));
    const at::Tensor gathered = all_gather(backend, padded);
    std::vector<std::string> texts;
    for (int rank = 0; rank < backend.size(); ++rank) {
        const std::int64_t length = lengths[rank].template item<std::int64_t>();
        texts.push_back(to_string(gathered[rank].slice(0, 0, length)));
    }
    return texts;
}

/// Runs `action`, which does not communicate, on every rank; when it throws on any of them, all
/// ranks throw the error of the lowest such rank. So no rank goes on alone.
template <Backend B, class Action>
void succeed_together(B& backend, Action&& action) {
    std::string code;
    std::string message;
    try {
        action();
    } catch (const std::exception& exception) {
        code = code_of(exception);
        message = message_of(exception);
    }
    const bool failed = !code.empty();
    if (backend.size() == 1 && !failed) {
        return;
    }
    const at::Tensor failures = all_gather(backend, at::full({1}, failed ? 1 : 0, at::kByte));
    if (failures.max().template item<std::int64_t>() == 0) {
        return;
    }
    const int culprit =
        static_cast<int>(failures.view({-1}).nonzero()[0].template item<std::int64_t>());
    code = broadcast(backend, code, culprit);
    message = broadcast(backend, message, culprit);
    throw_error(code, backend.size() > 1 ? with_rank(culprit, backend.size(), message) : message);
}

} // namespace rtrain::detail
