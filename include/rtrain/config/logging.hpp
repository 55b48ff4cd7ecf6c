// SPDX-License-Identifier: Apache-2.0
/// @file
/// LoggingConfig: rtrain's log level and format, and whether the ranks' output is stored.
/// Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/log_record.hpp>

#include <string>
#include <string_view>

namespace rtrain {

/// "info", "warning" or "error".
class LogLevel {
public:
    using Value = console::Level; ///< debug, info, warning, error

    constexpr LogLevel(Value value) noexcept : value_(value) {} // NOLINT(google-explicit-*)
    LogLevel(std::string_view name) {                           // NOLINT
        const auto level = console::level_names.parse(name);
        if (!level) {
            throw ConfigError("RT-C40", detail::concat("\"", name,
                                                       "\" is not a log level; expected "
                                                       "\"info\", \"warning\" or \"error\""));
        }
        value_ = *level;
    }
    LogLevel(const char* name) : LogLevel(std::string_view(name)) {}        // NOLINT
    LogLevel(const std::string& name) : LogLevel(std::string_view(name)) {} // NOLINT

    [[nodiscard]] constexpr operator Value() const noexcept { return value_; } // NOLINT

private:
    Value value_ = Value::info;
};

/// See docs/logs.md.
struct LoggingConfig {
    /// Least severe level that rtrain logs on standard error. "info": everything; "warning": only
    /// the unexpected; "error": only what ends a rank or the run (RT-C40). Printing errors that
    /// fit() throws is up to the program.
    LogLevel level = LogLevel::Value::info;
    /// Store what each rank writes to its standard output and standard error in logs/rank-N.log, in
    /// the run's directory. It is shown as before.
    bool to_file = false;
    /// rtrain's log lines, and each line of those files, are JSON objects with the fields time,
    /// rank, level and message.
    bool json = false;
};

} // namespace rtrain
