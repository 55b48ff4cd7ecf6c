// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a rank tells its driver about itself, several times a second: rtrain::RankStatus at one
/// moment.
#pragma once

#include <rtrain/process/rank_status.hpp>
#include <rtrain/process/reading.hpp>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <string>

namespace rtrain::launch {

struct RankReport {
    int rank = 0;
    Phase phase = Phase::starting;
    std::uint64_t progress = 0;    ///< RankStatus::progress
    std::uint64_t steps = 0;       ///< RankStatus::steps
    std::uint64_t collectives = 0; ///< RankStatus::collectives
    std::string waiting_in{};      ///< RankStatus::waiting_in; empty: it waits for nobody
    double cpu_s = 0;              ///< processor time that its process has used so far, seconds
    std::string reading{};         ///< Reading::longest(); empty: it reads nothing

    bool operator==(const RankReport&) const = default;

    /// Of this process.
    [[nodiscard]] static RankReport now(int rank) {
        const RankStatus& status = RankStatus::current();
        const char* const waiting_in = status.waiting_in.load(std::memory_order_relaxed);
        timespec cpu{};
        ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
        return {.rank = rank,
                .phase = status.phase.load(std::memory_order_relaxed),
                .progress = status.progress.load(std::memory_order_relaxed),
                .steps = status.steps.load(std::memory_order_relaxed),
                .collectives = status.collectives.load(std::memory_order_relaxed),
                .waiting_in = waiting_in != nullptr ? waiting_in : "",
                .cpu_s = static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec),
                .reading = Reading::longest()};
    }
};

} // namespace rtrain::launch
