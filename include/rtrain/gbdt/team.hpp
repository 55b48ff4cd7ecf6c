// SPDX-License-Identifier: Apache-2.0
/// @file
/// Team: the ranks that train, and their collectives.
#pragma once

#include <rtrain/comm/communicator.hpp>
#include <rtrain/gbdt/row_block.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace rtrain::gbdt {

/// The ranks that train, and this one's place among them.
struct Team {
    int rank = 0;
    int size = 1;
    int threads = 1;         ///< of this rank
    bool on_one_node = true; ///< all of them
    std::string device = "cpu";
    comm::Communicator* ranks = nullptr; ///< null for one rank
};

/// Returns rank 0's text on all ranks of a team.
[[nodiscard]] inline std::string broadcast(const Team& team, std::string text) {
    if (team.size == 1) {
        return text;
    }
    at::Tensor length = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong);
    team.ranks->broadcast(length, 0);
    text.resize(static_cast<std::size_t>(length.item<std::int64_t>()));
    at::Tensor bytes = at::from_blob(text.data(), {length.item<std::int64_t>()}, at::kByte);
    team.ranks->broadcast(bytes, 0);
    return text;
}

/// Replaces each metric by its mean over the ranks of a team, weighted by their rows.
inline void average(const Team& team, std::int64_t rows, Metrics& metrics) {
    if (team.size == 1 || metrics.empty()) {
        return;
    }
    at::Tensor sums = at::empty({static_cast<std::int64_t>(metrics.size()) + 1}, at::kDouble);
    auto* const values = sums.mutable_data_ptr<double>();
    for (std::size_t i = 0; i < metrics.size(); ++i) {
        values[i] = metrics[i].second * static_cast<double>(rows);
    }
    values[metrics.size()] = static_cast<double>(rows);
    team.ranks->all_reduce(sums, ReduceOp::sum);
    const auto* const reduced = sums.const_data_ptr<double>();
    for (std::size_t i = 0; i < metrics.size(); ++i) {
        metrics[i].second = reduced[i] / reduced[metrics.size()];
    }
}

} // namespace rtrain::gbdt
