// SPDX-License-Identifier: Apache-2.0
/// @file
/// The result of `worker.get_all_reported_checkpoints()`; names follow Ray Train.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/config/config.hpp>

#include <cstdint>

namespace rtrain {

/// The condition that get_all_reported_checkpoints() waits for.
enum class ConsistencyMode : std::uint8_t {
    committed, ///< every reported checkpoint is stored
    validated  ///< and every requested validation has ended
};

/// A checkpoint of this run, with its metrics and status.
struct ReportedCheckpoint {
    Checkpoint checkpoint;
    /// Metrics of the report that saved it, and of its validation once that has ended.
    Config metrics;
    /// Validation status.
    CheckpointStatus status = CheckpointStatus::committed;
};

} // namespace rtrain
