// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks of a sharded model with Share::numa, to which the NUMA nodes of a machine are what
/// machines are to others.
#pragma once

#include <rtrain/backend/any_backend.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/comm/communicator.hpp>
#include <rtrain/process/numa.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <utility>

namespace rtrain::detail {

/// `ranks`, of which those of a machine that are bound to the same NUMA node are a node; as they
/// are, behind a warning, when some are bound to none. *Collective.*
[[nodiscard]] inline std::shared_ptr<AnyBackend>
over_numa_nodes(const std::shared_ptr<AnyBackend>& ranks) {
    const std::optional<int> mine = numa_node();
    const at::Tensor known = ranks->all_gather(at::full({1}, mine ? 1 : 0, at::kInt));
    if (!mine) {
        console::warn("rank %d may run on cores of several NUMA nodes: Share::numa, which needs "
                      "ranks that are bound to one, is Share::node; see mpirun --bind-to numa",
                      ranks->rank());
    }
    if (known.min().item<int>() == 0) {
        return ranks;
    }
    return ranks->over(ranks->communicator()->with_parts_as_nodes(*mine));
}

} // namespace rtrain::detail
