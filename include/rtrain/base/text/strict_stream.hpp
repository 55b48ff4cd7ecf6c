// SPDX-License-Identifier: Apache-2.0
/// @file
/// Standard library streams that throw on errors and use the C locale.
#pragma once

#include <ios> // has std::locale, too: <locale> is large

namespace rtrain::detail {

/// Makes `stream` throw what reading or writing throws, such as std::bad_alloc; by default its text
/// would seem to end there. Uses the C locale, because the program's global locale may group
/// digits.
template <class Stream>
[[nodiscard]] Stream strict(Stream stream) {
    stream.imbue(std::locale::classic());
    stream.exceptions(std::ios::badbit);
    return stream;
}

} // namespace rtrain::detail
