// SPDX-License-Identifier: Apache-2.0
/// @file
/// A rank's report to its driver, sent several times a second: a snapshot of rtrain::RankStatus.
#pragma once

#include <rtrain/process/context.hpp>
#include <rtrain/process/os/processor_time.hpp>
#include <rtrain/process/status/rank_status.hpp>
#include <rtrain/process/stdio/standard_streams.hpp>

#include <atomic>
#include <cstdint>
#include <string>

namespace rtrain::launch {

struct RankReport {
    int rank = 0;
    Phase phase = Phase::starting;
    std::uint64_t progress = 0;    ///< RankStatus::progress
    std::uint64_t steps = 0;       ///< RankStatus::steps
    std::uint64_t collectives = 0; ///< RankStatus::collectives
    std::string waiting_in{};      ///< RankStatus::waiting_in; empty: not waiting
    double cpu_s = 0;              ///< processor time of it and its children so far, seconds
    std::string reading{};         ///< Readings::longest(); empty: not reading
    bool output_blocked = false;   ///< its output is not consumed, so printing blocks
    bool stopped = false;          ///< state T; from a process that speaks for a stopped one

    bool operator==(const RankReport&) const = default;

    /// Returns the report of this process.
    [[nodiscard]] static RankReport now(int rank, const ProcessContext& context) {
        const RankStatus& status = context.status;
        const char* const waiting_in = status.waiting_in.load(std::memory_order_relaxed);
        return {.rank = rank,
                .phase = status.phase.load(std::memory_order_relaxed),
                .progress = status.progress.load(std::memory_order_relaxed),
                .steps = status.steps.load(std::memory_order_relaxed),
                .collectives = status.collectives.load(std::memory_order_relaxed),
                .waiting_in = waiting_in != nullptr ? waiting_in : "",
                .cpu_s = process::processor_time_s(),
                .reading = context.readings.longest(),
                .output_blocked = process::is_output_blocked()};
    }
};

} // namespace rtrain::launch
