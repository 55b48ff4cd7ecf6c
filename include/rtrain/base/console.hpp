// SPDX-License-Identifier: Apache-2.0
/// @file
/// rtrain's log messages: all use say(), warn() and error(), which write to standard error. Cost
/// tier 0: std only.
#pragma once

#include <rtrain/base/log_record.hpp>
#include <rtrain/base/text/c_locale.hpp>
#include <rtrain/base/text/visible_text.hpp>

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <unistd.h>

namespace rtrain::console {

/// Log settings of this process; RunConfig::logging during a fit() call.
struct LogSettings {
    std::atomic<Level> least{Level::info}; ///< lower levels are not logged
    std::atomic<bool> json{false};         ///< one JSON object per line
    std::atomic<int> rank{-1};             ///< of this process; -1: not a rank, or not known yet
};

namespace internal {
inline LogSettings of_program;
inline std::atomic<LogSettings*> current{&of_program};
} // namespace internal

/// The current settings: of the program, unless a ProcessContext replaces them.
[[nodiscard]] inline LogSettings& settings() noexcept {
    return *internal::current.load();
}

/// Returns the previous ones.
inline LogSettings& use_settings(LogSettings& settings) noexcept {
    return *internal::current.exchange(&settings);
}

/// Applies log settings while it lives.
class ScopedLogSettings {
public:
    ScopedLogSettings(Level least, bool json) noexcept
        : least_(settings_.least.exchange(least)), json_(settings_.json.exchange(json)) {}
    ScopedLogSettings(const ScopedLogSettings&) = delete;
    ScopedLogSettings& operator=(const ScopedLogSettings&) = delete;
    ~ScopedLogSettings() {
        settings_.least = least_;
        settings_.json = json_;
        settings_.rank = -1;
    }

private:
    LogSettings& settings_ = settings();
    Level least_;
    bool json_;
};

/// Returns the formatted line, without a newline.
[[nodiscard]] inline std::string line_of(Level level, const char* text) {
    return settings().json ? record(settings().rank, level, text)
                           : "rtrain: " + rtrain::detail::visible(text);
}

/// True if the last line of this process's terminal may be a progress bar (console/screen.hpp): a
/// message overwrites it, and it is redrawn below.
inline std::atomic<bool> bar_is_up{false};

/// Receives lines instead of standard error; null: disabled. Set where logging must not block.
inline std::atomic<void (*)(const std::string& line)> line_taker{nullptr};

/// Prints the text as one line, unbuffered, so that lines of several processes do not mix. Like
/// vprintf; prints nothing when out of memory.
[[gnu::format(printf, 2, 0)]] inline void speak(Level level, const char* format,
                                                std::va_list arguments) noexcept {
    const rtrain::detail::InCLocale c;
    char* text = nullptr;
    if (level < settings().least || ::vasprintf(&text, format, arguments) < 0) {
        return;
    }
    try {
        const std::string line = line_of(level, text);
        if (auto* const take = line_taker.load()) {
            take(line);
        } else {
            std::fprintf(stderr, "%s%s\n", bar_is_up ? "\r\x1b[K" : "", line.c_str());
        }
    } catch (const std::exception&) { // out of memory
    }
    std::free(text);
}

/// Writes a complete line, newline included; async-signal-safe.
inline void say_in_signal(const char* line, std::size_t length) noexcept {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line, length);
}

/// Logs expected events.
[[gnu::format(printf, 1, 2)]] inline void say(const char* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    speak(Level::info, format, arguments);
    va_end(arguments);
}

/// Logs problems that do not end the run.
[[gnu::format(printf, 1, 2)]] inline void warn(const char* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    speak(Level::warning, format, arguments);
    va_end(arguments);
}

/// Logs errors that end a rank or the run.
[[gnu::format(printf, 1, 2)]] inline void error(const char* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    speak(Level::error, format, arguments);
    va_end(arguments);
}

} // namespace rtrain::console
