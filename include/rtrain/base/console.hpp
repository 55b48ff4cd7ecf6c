// SPDX-License-Identifier: Apache-2.0
/// @file
/// What rtrain itself tells people: all of it goes through say(), to standard error. Cost tier 0:
/// std only.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace rtrain::console {

/// Prints "rtrain: ", the text, and the end of the line, at once, so that what several processes
/// say does not mix. Like printf; says nothing where memory is out.
[[gnu::format(printf, 1, 2)]] inline void say(const char* format, ...) noexcept {
    std::va_list arguments;
    va_start(arguments, format);
    char* text = nullptr;
    if (::vasprintf(&text, format, arguments) >= 0) {
        std::fprintf(stderr, "rtrain: %s\n", text);
        std::free(text);
    }
    va_end(arguments);
}

} // namespace rtrain::console
