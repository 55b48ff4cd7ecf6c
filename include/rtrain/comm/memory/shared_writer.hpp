// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes into shared memory that neighbours have read: through the caches, or around them.
///
/// To write a cache line that another core still holds, this core must first acquire it. Measured
/// on two virtual cores, 1 MiB: 44 us while they are close, but 435 us, 2.4 GB/s, while the
/// hypervisor has them far apart. Streaming stores take 70 us and 36 us. So both ways are timed,
/// and the faster one is used; ranks choose independently.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace rtrain::comm {

/// Writes are visible to any thread that sees a later release store.
class SharedWriter {
public:
    /// Copies; `to` is aligned to 16 bytes.
    void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
        if (bytes > 0) {
            write(
                bytes, [&] { std::memcpy(to, from, bytes); }, [&] { stream(to, from, bytes); });
        }
    }

    /// to[i] = from[i] * factor; `through_caches()` does it in the ordinary way. No overlap.
    template <class ThroughCaches>
    void scale(float* to, const float* from, float factor, std::int64_t elements,
               ThroughCaches&& through_caches) {
        write(static_cast<std::size_t>(elements) * sizeof(float), through_caches,
              [&] { stream_scaled(to, from, factor, elements); });
    }

private:
    using Clock = std::chrono::steady_clock;

    /// A moving average that adapts to a change within a few writes.
    struct Speed {
        double ns_per_byte = 0; ///< unknown counts as fastest, so that each way is tried
        void add(double sample) {
            ns_per_byte = ns_per_byte == 0 ? sample : 0.5 * (ns_per_byte + sample);
        }
    };

    template <class Through, class Around>
    void write(std::size_t bytes, Through&& through, Around&& around) {
        constexpr std::size_t worth_timing = std::size_t{16} << 10;
        if (bytes < worth_timing) {
            through();
            return;
        }
        const bool other_way = ++writes_ % 32 == 0;
        // Data written through the caches is faster to read, which this factor accounts for.
        constexpr double readers_gain = 2;
        const bool better = through_.ns_per_byte <= readers_gain * around_.ns_per_byte;
        const bool cached = better != other_way;
        const auto begun = Clock::now();
        if (cached) {
            through();
        } else {
            around();
        }
        const std::chrono::duration<double, std::nano> taken = Clock::now() - begun;
        (cached ? through_ : around_).add(taken.count() / static_cast<double>(bytes));
    }

#if defined(__SSE2__)
    static void stream(std::byte* to, const std::byte* from, std::size_t bytes) {
        for (; bytes >= sizeof(__m128i); bytes -= sizeof(__m128i)) {
            _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                             _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
            to += sizeof(__m128i);
            from += sizeof(__m128i);
        }
        std::memcpy(to, from, bytes);
        _mm_sfence(); // streaming stores are not ordered by a release store
    }

    static void stream_scaled(float* to, const float* from, float factor, std::int64_t elements) {
        for (; elements > 0 && reinterpret_cast<std::uintptr_t>(to) % sizeof(__m128) != 0;
             --elements) {
            *to++ = *from++ * factor;
        }
        const __m128 factors = _mm_set1_ps(factor);
        for (; elements >= 4; elements -= 4, to += 4, from += 4) {
            _mm_stream_ps(to, _mm_mul_ps(_mm_loadu_ps(from), factors));
        }
        for (; elements > 0; --elements) {
            *to++ = *from++ * factor;
        }
        _mm_sfence();
    }
#else
    static void stream(std::byte* to, const std::byte* from, std::size_t bytes) {
        std::memcpy(to, from, bytes);
    }
    static void stream_scaled(float* to, const float* from, float factor, std::int64_t elements) {
        for (std::int64_t i = 0; i < elements; ++i) {
            to[i] = from[i] * factor;
        }
    }
#endif

    Speed through_;
    Speed around_;
    unsigned writes_ = 0;
};

} // namespace rtrain::comm
