// SPDX-License-Identifier: Apache-2.0
/// @file
/// The place reached in a data set. Cost tier 0: std only.
#pragma once

#include <cstdint>

namespace rtrain::data {

/// How far ranks have come in a data set; a checkpoint holds it.
struct Position {
    std::int64_t epoch = 0;   ///< the pass under way, or the next one
    std::int64_t samples = 0; ///< rows of this pass that all ranks together have taken
    bool iterating = false;   ///< a loop over the batches is under way

    void finish_epoch() noexcept { *this = {epoch + 1, 0, false}; }
};

} // namespace rtrain::data
