// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door settings.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/creators/settings.hpp>

namespace rtrain::detail {

RTRAIN_DOOR std::int64_t batch_size_of_rank(std::int64_t batch_size, int replicas) {
    if (batch_size < replicas) {
        throw ConfigError("RT-F32", concat("batch_size is ", batch_size, " rows of ", replicas,
                                           replicas == 1 ? " replica" : " replicas",
                                           " together; expected at least one row of each"));
    }
    return batch_size / replicas;
}

RTRAIN_DOOR void warn_of_batch_size(std::int64_t batch_size, int replicas) {
    const std::int64_t rows = batch_size_of_rank(batch_size, replicas) * replicas;
    if (rows != batch_size) {
        console::warn("batch_size %lld is not a multiple of %d replicas; a step has %lld rows",
                      static_cast<long long>(batch_size), replicas, static_cast<long long>(rows));
    }
}

RTRAIN_DOOR void require_mpi(std::string_view backend) {
    if (backend == "auto" || backend == "mpi") {
        return;
    }
    if (backend == "gloo") {
        console::say("backend \"gloo\" is backend::Mpi in rtrain");
        return;
    }
    throw ConfigError(
        "RT-F38", concat("the backend \"", backend, "\" is not \"auto\", \"mpi\" or \"gloo\"; ",
                         backend == "nccl" ? "include <rtrain/backend/nccl.hpp> and set .backend = "
                                             "rtrain::backend::Nccl{}"
                                           : "or set .backend to a backend object"));
}

} // namespace rtrain::detail
