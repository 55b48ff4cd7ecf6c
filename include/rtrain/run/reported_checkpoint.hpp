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

struct ReportedCheckpoint {
    Checkpoint checkpoint;
    /// The report it was made in; when it has been validated, with the metrics of that.
    Config metrics;
    CheckpointStatus status = CheckpointStatus::committed;
};

} // namespace rtrain
