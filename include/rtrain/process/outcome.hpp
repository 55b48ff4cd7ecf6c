// SPDX-License-Identifier: Apache-2.0
/// @file
/// How one rank's training function ended. Cost tier 0: std only.
#pragma once

#include <string>
#include <string_view>

namespace rtrain {

/// Whether an error with this code only tells that another rank failed or died, which knows better
/// why.
[[nodiscard]] inline bool caused_by_another(std::string_view code) {
    return code == "RT-X1" || code == "RT-X9";
}

struct Outcome {
    enum class Kind : char {
        finished = 'f',    ///< returned
        failed = 'e',      ///< threw
        interrupted = 'i', ///< threw because another rank failed
        died = 'd'         ///< its process was gone before it could say anything
    };

    Kind kind = Kind::finished;
    std::string message; ///< of the exception, or that the process died
};

} // namespace rtrain
