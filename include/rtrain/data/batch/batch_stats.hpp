// SPDX-License-Identifier: Apache-2.0
/// @file
/// Times of a loop over batches, stage by stage.
#pragma once

#include <rtrain/base/text/c_locale.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/rows.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace rtrain::data {

/// The totals of a stage, over all passes.
struct StageStats {
    std::int64_t rows = 0;
    std::int64_t bytes = 0; ///< of its batches
    double busy_s = 0;      ///< summed over its threads
    double waiting_s = 0;   ///< for work, summed over its threads
};

/// The result of `batches.stats()`. BatchOptions::threads threads read and collate, or else the
/// loop itself.
struct BatchStats {
    StageStats read;     ///< files, stages of the data set; everything read ahead
    StageStats collate;  ///< BatchOptions::collate, dtypes and pin_memory
    StageStats transfer; ///< to the device, in the loop's thread; nothing on the CPU
    StageStats loop;     ///< busy in its body, waiting for batches
    /// If the loop waits for more than a tenth of its time: the busiest of "read", "collate" and
    /// "transfer". Else "loop": faster reading would gain little.
    std::string_view slowest = "loop";
};

/// Prints a line for each stage.
[[nodiscard]] inline std::string to_string(const BatchStats& stats) {
    const auto line = [&](std::string_view name, const StageStats& stage) {
        return rtrain::detail::print(
            "%-8.*s %12lld rows %10.1f MB %9.3f s busy %9.3f s waiting%s\n",
            static_cast<int>(name.size()), name.data(), static_cast<long long>(stage.rows),
            static_cast<double>(stage.bytes) / 1e6, stage.busy_s, stage.waiting_s,
            name == stats.slowest ? ", the slowest" : "");
    };
    return line("read", stats.read) + line("collate", stats.collate) +
           line("transfer", stats.transfer) + line("loop", stats.loop);
}

/// Sums the work of several threads in a stage.
class StageCounter {
public:
    using Clock = std::chrono::steady_clock;

    void add_busy(Clock::duration time) noexcept { add(busy_ns_, nanoseconds(time)); }
    void add_waiting(Clock::duration time) noexcept { add(waiting_ns_, nanoseconds(time)); }
    void add_batch(const Batch& batch) {
        add(rows_, batch.size());
        add(bytes_, bytes_of(batch));
    }

    [[nodiscard]] StageStats stats() const noexcept {
        return {rows_.load(), bytes_.load(), static_cast<double>(busy_ns_.load()) * 1e-9,
                static_cast<double>(waiting_ns_.load()) * 1e-9};
    }

private:
    [[nodiscard]] static std::int64_t nanoseconds(Clock::duration time) noexcept {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    }
    static void add(std::atomic<std::int64_t>& sum, std::int64_t more) noexcept {
        sum.fetch_add(more, std::memory_order_relaxed);
    }

    std::atomic<std::int64_t> rows_{0};
    std::atomic<std::int64_t> bytes_{0};
    std::atomic<std::int64_t> busy_ns_{0};
    std::atomic<std::int64_t> waiting_ns_{0};
};

struct BatchCounters {
    StageCounter read;
    StageCounter collate;
    StageCounter transfer;
    StageCounter loop;

    [[nodiscard]] BatchStats stats() const {
        constexpr double waits_much = 0.1;
        BatchStats stats{read.stats(), collate.stats(), transfer.stats(), loop.stats()};
        if (stats.loop.waiting_s > waits_much * (stats.loop.busy_s + stats.loop.waiting_s)) {
            stats.slowest = "read";
            double most = stats.read.busy_s;
            if (stats.collate.busy_s > most) {
                stats.slowest = "collate";
                most = stats.collate.busy_s;
            }
            if (stats.transfer.busy_s > most) {
                stats.slowest = "transfer";
            }
        }
        return stats;
    }
};

} // namespace rtrain::data
