// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a rank tells its driver about itself, several times a second: rtrain::RankStatus at one
/// moment.
#pragma once

#include <rtrain/process/rank_status.hpp>

#include <cstdint>
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
};

} // namespace rtrain::launch
