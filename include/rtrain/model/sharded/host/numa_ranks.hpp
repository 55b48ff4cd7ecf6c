// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks of a sharded model with Share::numa, where NUMA nodes take the place of machines.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/process/os/numa.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <utility>

namespace rtrain::detail {

/// Returns `ranks`, where those bound to the same NUMA node of a machine form a node; unchanged,
/// with a warning, when some are bound to none. *Collective.*
[[nodiscard]] inline std::shared_ptr<AnyBackend>
over_numa_nodes(const std::shared_ptr<AnyBackend>& ranks) {
    const std::optional<int> mine = numa_node();
    const at::Tensor known = ranks->all_gather(at::full({1}, mine ? 1 : 0, at::kInt));
    if (!mine) {
        console::warn(
            "rank %d may run on cores of several NUMA nodes, but Share::numa needs ranks "
            "bound to one; falling back to Share::node: bind ranks with mpirun --bind-to numa",
            ranks->rank());
    }
    if (known.min().item<int>() == 0) {
        return ranks;
    }
    return ranks->over(ranks->communicator()->with_parts_as_nodes(*mine));
}

} // namespace rtrain::detail
