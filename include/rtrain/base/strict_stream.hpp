// SPDX-License-Identifier: Apache-2.0
/// @file
/// Streams of the standard library that do not hide what goes wrong, and have C's locale.
#pragma once

#include <ios> // has std::locale, too: <locale> is large
#include <utility>

namespace rtrain::detail {

/// Has `stream` throw what reading or writing throws, such as std::bad_alloc. By default it would
/// look as if its text ended there. The program's global locale may group digits.
template <class Stream>
[[nodiscard]] Stream strict(Stream stream) {
    stream.imbue(std::locale::classic());
    stream.exceptions(std::ios::badbit);
    return stream;
}

} // namespace rtrain::detail
