// SPDX-License-Identifier: Apache-2.0
/// @file
/// Streams of the standard library that do not hide what goes wrong.
#pragma once

#include <ios>
#include <utility>

namespace rtrain::detail {

/// Has `stream` throw what reading or writing throws, such as std::bad_alloc. By default it would
/// look as if its text ended there.
template <class Stream>
[[nodiscard]] Stream strict(Stream stream) {
    stream.exceptions(std::ios::badbit);
    return stream;
}

} // namespace rtrain::detail
