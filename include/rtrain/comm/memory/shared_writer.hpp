// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes into shared memory that neighbours have read: through the caches, or around them.
///
/// To write a cache line that another core still holds, this core must first acquire it. Measured
/// on two virtual cores, 1 MiB: 44 us while they are close, but 435 us, 2.4 GB/s, while the
/// hypervisor has them far apart. Streaming stores take 70 us and 36 us. So both ways are timed,
/// and the faster one is used; ranks choose independently.
#pragma once

#include <rtrain/comm/kernels/streaming_stores.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rtrain::comm {

/// Writes are visible to any thread that sees a later release store.
class SharedWriter {
public:
    void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
        write(bytes, [&](bool around) {
            around ? kernels::stream(to, from, bytes) : void(std::memcpy(to, from, bytes));
        });
    }

    /// to[i] = from[i] * factor; `through_caches()` does it in the ordinary way. No overlap.
    template <class ThroughCaches>
    void scale(float* to, const float* from, float factor, std::int64_t elements,
               ThroughCaches&& through_caches) {
        write(static_cast<std::size_t>(elements) * sizeof(float), [&](bool around) {
            around ? kernels::stream_scaled(to, from, factor, elements) : through_caches();
        });
    }

    /// Calls `way(around)`, which writes `bytes`: with streaming stores if `around`, otherwise
    /// through the caches. One writer is for writes of one kind, because it compares their times.
    template <class Way>
    void write(std::size_t bytes, Way&& way) {
        constexpr std::size_t worth_timing = std::size_t{16} << 10;
        if (bytes < worth_timing) {
            way(false);
            return;
        }
        const bool around = takes_around();
        const auto begun = Clock::now();
        way(around);
        if (around) {
            kernels::fence_streaming_stores();
        }
        const std::chrono::duration<double, std::nano> taken = Clock::now() - begun;
        (around ? around_ : through_).add(taken.count() / static_cast<double>(bytes));
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

    /// The better way; at times the other one, in case it has become better.
    [[nodiscard]] bool takes_around() {
        // Data written through the caches is faster to read, which this factor accounts for.
        constexpr double readers_gain = 2;
        const double through = through_.ns_per_byte;
        const double around = readers_gain * around_.ns_per_byte;
        const bool better = through > around;
        if (through == 0 || around == 0 || --until_trial_ > 0) {
            return better;
        }
        constexpr double seldom = 32;
        const double worse = std::max(through, around) / std::min(through, around);
        until_trial_ = static_cast<int>(seldom * std::min(worse, seldom));
        return !better;
    }

    Speed through_;
    Speed around_;
    int until_trial_ = 32;
};

} // namespace rtrain::comm
