// SPDX-License-Identifier: Apache-2.0
/// @file
/// Stores that bypass the caches, for memory that another core holds in its own. On processors
/// without them: ordinary stores. Cost tier 0: std only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace rtrain::comm::kernels {

/// Called after the last streaming store, which a release store does not order.
inline void fence_streaming_stores() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/// memcpy() by streaming stores.
inline void stream(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__SSE2__)
    constexpr std::size_t width = sizeof(__m128i);
    if (bytes >= width) {
        const std::size_t before = (0 - reinterpret_cast<std::uintptr_t>(to)) % width;
        std::memcpy(to, from, before); // up to an aligned address
        to += before;
        from += before;
        bytes -= before;
    }
    for (; bytes >= width; bytes -= width, to += width, from += width) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
#endif
    std::memcpy(to, from, bytes);
}

/// to[i] = from[i] * factor by streaming stores.
inline void stream_scaled(float* to, const float* from, float factor, std::int64_t elements) {
    const auto one_at_a_time = [&](auto&& continues) {
        for (; elements > 0 && continues(); --elements) {
            *to++ = *from++ * factor;
        }
    };
#if defined(__SSE2__)
    one_at_a_time([&] { return reinterpret_cast<std::uintptr_t>(to) % sizeof(__m128) != 0; });
    const __m128 factors = _mm_set1_ps(factor);
    for (; elements >= 4; elements -= 4, to += 4, from += 4) {
        _mm_stream_ps(to, _mm_mul_ps(_mm_loadu_ps(from), factors));
    }
#endif
    one_at_a_time([] { return true; });
}

} // namespace rtrain::comm::kernels
