// SPDX-License-Identifier: Apache-2.0
/// Failure: what failed, passed from an exception, or from the process that detects a death, to the
/// failure policy (launch/supervise/failure_policy.hpp). Serialization is in base/failure_json.hpp,
/// conversion from exceptions in base/exception_text.hpp.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/error_codes.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rtrain {

/// A failure of a rank, or of a process that died before it could report.
struct Failure {
    /// Kind of failure.
    enum class Kind : std::uint8_t {
        threw,        ///< a rank threw
        interrupted,  ///< a rank threw because another failed or died
        died,         ///< a process died before it could report
        hang,         ///< the ranks made no progress
        start_up,     ///< ranks exited before they opened the run
        preemption,   ///< ranks were preempted, their driver was not
        configuration ///< restarting the same program must fail the same way
    };
    /// The code of exceptions that are not rtrain's; their texts do not show it.
    static constexpr const char* foreign = "RT-T2";

    Kind kind = Kind::threw;
    ErrorCode code{};      ///< for example "RT-D4"; empty: nothing was thrown
    int rank = -1;         ///< -1: not a single rank
    std::string message{}; ///< without the code
    /// True if the cause may be external: a signal such as SIGKILL, a lost host, a stopped process.
    /// Then neither the program nor its checkpoint is suspect.
    bool from_outside = false;

    bool operator==(const Failure&) const = default;

    /// Returns the text of the exception's `what()`.
    [[nodiscard]] std::string text() const {
        return code.empty() || code == foreign ? message : message + " [" + code.text() + "]";
    }
};

/// True if a failure with this code repeats at each start in this environment: no thread can be
/// created, a file would exceed a size limit, mpirun rejects its command line.
[[nodiscard]] inline bool meets_each_start(ErrorCode code) {
    return code == "RT-L45" || code == "RT-L46" || code == "RT-L87" || code == "RT-S45";
}

namespace detail {

/// Returns the kind of an exception with that code.
[[nodiscard]] inline Failure::Kind kind_of_thrown(ErrorCode code) {
    return code == "RT-X1" || code == "RT-X9" || code == "RT-G17" || code == "RT-X118"
               ? Failure::Kind::interrupted
           : code == "RT-T3" ? Failure::Kind::preemption
                             : Failure::Kind::threw;
}

} // namespace detail

/// True if an error with this code only means that another rank failed or died, which has the
/// cause.
[[nodiscard]] inline bool caused_by_another(std::string_view code) {
    return detail::kind_of_thrown(ErrorCode::parse(code)) == Failure::Kind::interrupted;
}

/// The outcome of one rank's training function: a failure, or nullopt if it returned.
using Outcome = std::optional<Failure>;

} // namespace rtrain
