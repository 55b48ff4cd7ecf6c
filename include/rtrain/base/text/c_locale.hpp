// SPDX-License-Identifier: Apache-2.0
/// @file
/// Formats and parses text in the C locale, whatever locale the program has set, because programs
/// read files, addresses and messages. Cost tier 0: std only.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include <locale.h>

namespace rtrain::detail {

/// While this object lives, the calling thread formats and parses numbers in the C locale.
class InCLocale {
public:
    InCLocale() noexcept : before_(::uselocale(c_locale())) {}
    InCLocale(const InCLocale&) = delete;
    InCLocale& operator=(const InCLocale&) = delete;
    ~InCLocale() { ::uselocale(before_); }

private:
    [[nodiscard]] static locale_t c_locale() noexcept {
        static const locale_t locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
        return locale;
    }
    locale_t before_;
};

/// Like sprintf.
[[nodiscard, gnu::format(printf, 1, 2)]] inline std::string print(const char* format, ...) {
    char* text = nullptr;
    std::va_list arguments;
    va_start(arguments, format);
    const InCLocale c;
    const int length = ::vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0) {
        throw std::bad_alloc();
    }
    const std::string result(text, static_cast<std::size_t>(length));
    std::free(text);
    return result;
}

/// Like tolower, for ASCII only.
[[nodiscard]] constexpr char lower(char letter) noexcept {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

} // namespace rtrain::detail
