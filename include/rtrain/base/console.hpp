// SPDX-License-Identifier: Apache-2.0
/// @file
/// What rtrain itself tells people: all of it goes through say(), warn() and error(), to standard
/// error. Cost tier 0: std only.
#pragma once

#include <rtrain/base/c_locale.hpp>
#include <rtrain/base/log_record.hpp>
#include <rtrain/base/visible_text.hpp>

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <unistd.h>

namespace rtrain::console {

/// How this process says it; RunConfig::logging, while a fit() call lasts.
struct Manner {
    std::atomic<Level> least{Level::info}; ///< what matters less is not said
    std::atomic<bool> json{false};         ///< a JSON object a line
    std::atomic<int> rank{-1};             ///< of this process; -1: it is none, or not known yet
};
inline Manner manner;

/// Speaks in this manner as long as it lives.
class Speaking {
public:
    Speaking(Level least, bool json) noexcept
        : least_(manner.least.exchange(least)), json_(manner.json.exchange(json)) {}
    Speaking(const Speaking&) = delete;
    Speaking& operator=(const Speaking&) = delete;
    ~Speaking() {
        manner.least = least_;
        manner.json = json_;
        manner.rank = -1;
    }

private:
    Level least_;
    bool json_;
};

/// The line that says it, without its end.
[[nodiscard]] inline std::string line_of(Level level, const char* text) {
    return manner.json ? record(manner.rank, level, text)
                       : "rtrain: " + rtrain::detail::visible(text);
}

/// Whether the last line of this process's terminal may be a bar (console/screen.hpp): what is said
/// takes its place, and it comes back below.
inline std::atomic<bool> bar_is_up{false};

/// Takes lines instead of standard error; null: none does. Set where nobody may be waited for who
/// reads them.
inline std::atomic<void (*)(const std::string& line)> line_taker{nullptr};

/// Prints the text as a line of its own, at once, so that what several processes say does not mix.
/// Like vprintf; says nothing where memory is out.
[[gnu::format(printf, 2, 0)]] inline void speak(Level level, const char* format,
                                                std::va_list arguments) noexcept {
    const rtrain::detail::InCLocale c;
    char* text = nullptr;
    if (level < manner.least || ::vasprintf(&text, format, arguments) < 0) {
        return;
    }
    try {
        const std::string line = line_of(level, text);
        if (auto* const take = line_taker.load()) {
            take(line);
        } else {
            std::fprintf(stderr, "%s%s\n", bar_is_up ? "\r\x1b[K" : "", line.c_str());
        }
    } catch (const std::exception&) { // memory
    }
    std::free(text);
}

/// A line, with its end, as it is: all that a signal handler may do.
inline void say_in_signal(const char* line, std::size_t length) noexcept {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line, length);
}

/// What goes as planned.
[[gnu::format(printf, 1, 2)]] inline void say(const char* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    speak(Level::info, format, arguments);
    va_end(arguments);
}

/// What does not, and does not end the run.
[[gnu::format(printf, 1, 2)]] inline void warn(const char* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    speak(Level::warning, format, arguments);
    va_end(arguments);
}

/// What ends a rank or the run.
[[gnu::format(printf, 1, 2)]] inline void error(const char* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    speak(Level::error, format, arguments);
    va_end(arguments);
}

} // namespace rtrain::console
