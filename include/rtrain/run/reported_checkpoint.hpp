// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `worker.get_all_reported_checkpoints()` gives; names follow Ray Train.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/config/config.hpp>

#include <cstdint>

namespace rtrain {

/// What get_all_reported_checkpoints() waits for.
enum class ConsistencyMode : std::uint8_t {
    committed, ///< that each reported checkpoint is in the storage
    validated  ///< and that every validation asked for has ended
};

/// A checkpoint of this run, and what is known about it.
struct ReportedCheckpoint {
    Checkpoint checkpoint; ///< where it is
    /// The report it was made in; when it has been validated, with the metrics of that.
    Config metrics;
    /// Whether it was, or is to be, validated.
    CheckpointStatus status = CheckpointStatus::committed;
};

} // namespace rtrain
