// SPDX-License-Identifier: Apache-2.0
/// @file
/// Verifies that all ranks save the same state: all ranks load what one of them writes.
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/base/packed.hpp>
#include <rtrain/checkpoint/layout/snapshot.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace rtrain::checkpoint {

namespace alike {

using Sums = std::map<std::string, std::uint32_t>;

/// Checksum of a tensor; `sample`: of about 256 equally spaced elements if it is large.
[[nodiscard]] inline std::uint32_t sum_of(const at::Tensor& tensor, bool sample) {
    constexpr std::int64_t elements = 256;
    at::Tensor values = tensor.detach();
    if (sample && values.numel() > 4 * elements && values.is_contiguous()) {
        values = values.view({-1}).slice(0, 0, values.numel(), values.numel() / elements);
    }
    values = values.cpu().contiguous();
    return crc32c(detail::concat(tensor.scalar_type(), tensor.sizes(),
                                 sum_of_sums(values.const_data_ptr(), values.nbytes())));
}

[[nodiscard]] inline Sums sums_of(const Snapshot& state) {
    Sums sums;
    for (const auto& [name, sample] : state.alike) {
        const auto found = state.tensors.find(name);
        if (found == state.tensors.end()) {
            sums[name] = crc32c(json::serialize(state.values.at(name)));
        } else if (found->second.defined() && found->second.layout() == at::kStrided) {
            sums[name] = sum_of(found->second, sample);
        }
    }
    return sums;
}

/// Text for messages: a short value itself, or the type and shape of a tensor.
[[nodiscard]] inline std::string text_of(const Snapshot& state, const std::string& name) {
    constexpr std::size_t most = 80;
    const auto found = state.tensors.find(name);
    if (found == state.tensors.end()) {
        const auto& value = state.values.at(name);
        const std::string text =
            value.is_double() ? detail::concat(value.as_double()) : json::serialize(value);
        return text.size() > most ? text.substr(0, most) + "..." : text;
    }
    const at::Tensor& tensor = found->second;
    return tensor.numel() == 1 && at::isFloatingType(tensor.scalar_type())
               ? detail::concat(tensor.item<double>())
               : detail::concat("a tensor ", tensor.scalar_type(), tensor.sizes());
}

[[noreturn]] inline void throw_different(const std::string& name, const std::string& first,
                                         int rank, const std::string& other) {
    const auto is = [](const std::string& text) { return text.empty() ? "missing" : text; };
    throw CheckpointError(
        "RT-K29",
        detail::concat("\"", name, "\" of the state is ", is(first), " on rank 0, but ", is(other),
                       first == other ? " with different values" : "", " on rank ", rank,
                       "; all ranks would load the same values: add per-rank values with "
                       "State::add_per_rank(), or make them equal before the report"));
}

} // namespace alike

/// Throws CheckpointError [RT-K29] on all ranks if an entry named in Snapshot::alike differs
/// between ranks. *Collective.*
inline void require_equal_state(const Snapshot& state, HookRanks& ranks) {
    if (ranks.size() == 1) {
        return;
    }
    const alike::Sums sums = alike::sums_of(state);
    detail::Packer short_form;
    detail::Packer long_form;
    for (const auto& [name, sum] : sums) {
        short_form.put(name);
        short_form.put(sum);
    }
    const auto mine = static_cast<std::int64_t>(crc32c(short_form.bytes()));
    const at::Tensor together = ranks.all_gather(at::full({1}, mine, at::kLong)).view({-1});
    if (together.eq(together[0]).all().item<bool>()) {
        return;
    }
    for (const auto& [name, sum] : sums) {
        long_form.put(name);
        long_form.put(sum);
        long_form.put(alike::text_of(state, name));
    }
    struct Seen {
        std::uint32_t sum = 0;
        std::string text;
    };
    std::map<std::string, std::map<int, Seen>> seen;
    const auto packed = detail::all_gather(ranks, long_form.bytes());
    for (int rank = 0; rank < ranks.size(); ++rank) {
        detail::Unpacker in(packed[static_cast<std::size_t>(rank)]);
        while (!in.is_empty()) {
            const std::string name = in.take_text();
            const auto sum = in.take<std::uint32_t>();
            seen[name][rank] = {sum, in.take_text()};
        }
    }
    for (auto& [name, by_rank] : seen) {
        for (int rank = 1; rank < ranks.size(); ++rank) {
            if (by_rank[0].sum != by_rank[rank].sum) { // 0: missing
                alike::throw_different(name, by_rank[0].text, rank, by_rank[rank].text);
            }
        }
    }
}

} // namespace rtrain::checkpoint
