// SPDX-License-Identifier: Apache-2.0
/// @file
/// What has failed: the one form of it on the way from an exception, or from whoever notices that a
/// process is gone, to whoever decides what follows (launch/supervise/failure_policy.hpp). How it
/// travels is in base/failure_json.hpp, how an exception becomes one in base/exception_text.hpp.
/// Cost tier 0: std only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rtrain {

/// Whether an error with this code only tells that another rank failed or died, which knows better
/// why.
[[nodiscard]] inline bool caused_by_another(std::string_view code) {
    return code == "RT-X1" || code == "RT-X9";
}

/// What went wrong on a rank, or in a process that was gone before it could say so.
struct Failure {
    /// In which way.
    enum class Kind : std::uint8_t {
        threw,        ///< a rank has thrown
        interrupted,  ///< it has thrown because another rank failed or died
        died,         ///< a process was gone before it could say anything
        hang,         ///< the ranks made no progress
        start_up,     ///< ranks ended before they took up the run
        preemption,   ///< ranks were told to make room, their driver was not
        configuration ///< another start of the same program must fail alike
    };
    /// The code of exceptions that are none of rtrain's; their texts do not show it.
    static constexpr const char* foreign = "RT-T2";

    Kind kind = Kind::threw; ///< in which way
    std::string code{};      ///< such as "RT-D4"; empty: nothing was thrown
    int rank = -1;           ///< -1: not one rank alone
    std::string message{};   ///< without the code
    /// Whether somebody else may have caused it: a signal such as SIGKILL, a lost host, a stopped
    /// process. It then says nothing about the program or its checkpoint.
    bool from_outside = false;

    bool operator==(const Failure&) const = default;

    /// For people, as `what()` of the exception has it.
    [[nodiscard]] std::string text() const {
        return code.empty() || code == foreign ? message : message + " [" + code + "]";
    }
};

/// Whether a failure with this code meets each start in these surroundings: no thread is to be had,
/// a file would be larger than a limit allows, mpirun refuses its command line.
[[nodiscard]] inline bool meets_each_start(std::string_view code) {
    return code == "RT-L45" || code == "RT-L46" || code == "RT-L87" || code == "RT-S45";
}

/// How one rank's training function ended: with this failure, or by its return.
using Outcome = std::optional<Failure>;

} // namespace rtrain
