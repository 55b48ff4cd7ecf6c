// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door gathered_rows.hpp.
#pragma once

#include <rtrain/config/config.hpp>
#include <rtrain/fit/gathered_rows.hpp>

#include <ATen/Functions.h>

#include <boost/json/array.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rtrain::detail {

RTRAIN_DOOR at::Tensor gathered_rows(WorkerCollectives& worker, const at::Tensor& mine) {
    Config row; // type and shape of a row, from the last rank, which has one
    if (mine.defined()) {
        boost::json::array sizes;
        for (const std::int64_t size : mine.sizes().slice(1)) {
            sizes.emplace_back(size);
        }
        row = {{"type", static_cast<int>(mine.scalar_type())}, {"sizes", sizes}};
    }
    row = worker.broadcast(row, worker.size() - 1);
    const auto counts = worker.all_gather(mine.defined() ? mine.size(0) : std::int64_t{0});
    std::vector<std::int64_t> shape{*std::ranges::max_element(counts)};
    for (const auto& size : row.at("sizes").as_array()) {
        shape.push_back(size.to_number<std::int64_t>());
    }
    const auto type = static_cast<at::ScalarType>(row.at("type").to_number<int>());
    at::Tensor padded = at::zeros(shape, at::device(worker.device()).dtype(type));
    if (mine.defined()) {
        padded.slice(0, 0, mine.size(0)).copy_(mine);
    }
    std::vector<at::Tensor> all = worker.all_gather(padded);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        all[rank] = all[rank].slice(0, 0, counts[rank]);
    }
    return at::cat(all);
}

} // namespace rtrain::detail
