// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collectives on strings, and functions built on them.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/backend/torch_exceptions.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/base/failure_json.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/rank_prefix.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace rtrain::detail {

/// Returns a byte tensor that holds `text`.
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

/// Returns rank `root`'s text on all ranks.
[[nodiscard]] inline std::string broadcast(HookRanks& backend, const std::string& text, int root) {
    if (backend.size() == 1) {
        return text;
    }
    at::Tensor length = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong);
    backend.broadcast(length, root);
    at::Tensor bytes = backend.rank() == root ? to_bytes(text)
                                              : at::empty({length.item<std::int64_t>()}, at::kByte);
    backend.broadcast(bytes, root);
    return to_string(bytes);
}

/// Returns each rank's text, indexed by rank.
[[nodiscard]] inline std::vector<std::string> all_gather(HookRanks& backend,
                                                         const std::string& text) {
    std::vector<std::string> texts;
    for (const at::Tensor& bytes : backend.all_gather_parts(to_bytes(text))) {
        texts.push_back(to_string(bytes));
    }
    return texts;
}

/// Runs `action`, which does not communicate, on every rank. If it throws on any rank, all ranks
/// throw the error of the lowest such rank, so that no rank continues alone.
inline void succeed_together(HookRanks& backend, const std::function<void()>& action) {
    Outcome mine;
    try {
        action();
    } catch (const std::exception& exception) {
        mine = failure_of(exception);
    }
    if (backend.size() == 1 && !mine) {
        return;
    }
    const at::Tensor failures = backend.all_gather(at::full({1}, mine ? 1 : 0, at::kByte));
    if (failures.max().item<std::int64_t>() == 0) {
        return;
    }
    const int culprit = static_cast<int>(failures.view({-1}).nonzero()[0].item<std::int64_t>());
    const std::string text = mine ? json::serialize(to_json(*mine)) : "";
    Failure failure = decode_failure(broadcast(backend, text, culprit));
    if (backend.size() > 1) {
        failure.message = with_rank(culprit, backend.size(), failure.message);
    }
    throw_error(failure);
}

} // namespace rtrain::detail
