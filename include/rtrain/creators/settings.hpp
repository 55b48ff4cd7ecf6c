// SPDX-License-Identifier: Apache-2.0
/// @file
/// The options of a CreatorTrainer without the types of its creators.
#pragma once

#include <rtrain/base/compiled.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace rtrain {

/// When a CreatorTrainer steps its learning-rate schedule.
enum class SchedulerStep : std::uint8_t {
    batch,
    epoch,
    manual ///< in update_scheduler()
};

namespace detail {

struct CreatorSettings {
    std::int64_t batch_size = 16; ///< of all ranks
    SchedulerStep scheduler_step_freq = SchedulerStep::epoch;
    bool saves_every_call = false;
    std::string input_column{};
    std::string target_column{};
};

/// Returns the rows of a rank's batch. Throws ConfigError [RT-F32] if they are less than one.
[[nodiscard]] std::int64_t batch_size_of_rank(std::int64_t batch_size, int replicas);
/// Warns if the ranks cannot share the batch evenly.
void warn_of_batch_size(std::int64_t batch_size, int replicas);

/// Throws ConfigError [RT-F38] unless the name selects backend::Mpi.
void require_mpi(std::string_view backend);

} // namespace detail
} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/creators/settings_definitions.hpp>
#endif
