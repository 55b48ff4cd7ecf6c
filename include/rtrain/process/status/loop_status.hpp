// SPDX-License-Identifier: Apache-2.0
/// @file
/// Progress of this rank's training loop, for display: written by the training thread, one store
/// per batch, and read by another. Cost tier 0: std only; any room may include it.
#pragma once

#include <atomic>
#include <cstdint>

namespace rtrain {

class LoopStatus {
public:
    /// Length of a training loop over batches.
    struct Length {
        std::int64_t first = 0;       ///< batches consumed before, in a resumed run
        std::int64_t total = 0;       ///< batches; 0: unknown
        std::int64_t rows = 0;        ///< per batch
        std::int64_t rows_of_all = 0; ///< per step of all ranks
    };

    /// A reader's snapshot. Its values may differ by one batch.
    struct Reading {
        std::int64_t epoch = 0;  ///< from 1; 0: none
        std::int64_t epochs = 0; ///< 0: unknown
        bool in_steps = false;   ///< both count steps, of worker.steps()
        std::int64_t loop = 0;   ///< number of the loop; 0: none yet
        bool under_way = false;  ///< true while the loop runs
        std::int64_t done = 0;   ///< its completed batches
        Length length{};
    };

    /// Call at the start of a run.
    void reset() noexcept {
        epoch_ = epochs_ = loop_ = done_ = 0;
        under_way_ = false;
    }

    /// `epoch` counts from 0. `in_steps`: it is a step of worker.steps().
    void begin_epoch(std::int64_t epoch, std::int64_t epochs, bool in_steps = false) noexcept {
        in_steps_.store(in_steps, std::memory_order_relaxed);
        epoch_.store(epoch + 1, std::memory_order_relaxed);
        epochs_.store(epochs, std::memory_order_relaxed);
    }

    void begin_loop(const Length& length) noexcept {
        first_.store(length.first, std::memory_order_relaxed);
        total_.store(length.total, std::memory_order_relaxed);
        rows_.store(length.rows, std::memory_order_relaxed);
        rows_of_all_.store(length.rows_of_all, std::memory_order_relaxed);
        done_.store(length.first, std::memory_order_relaxed);
        under_way_.store(true, std::memory_order_relaxed);
        loop_.fetch_add(1, std::memory_order_release);
    }
    /// One more batch is completed.
    void advance() noexcept { done_.fetch_add(1, std::memory_order_relaxed); }
    void end_loop() noexcept { under_way_.store(false, std::memory_order_relaxed); }

    [[nodiscard]] Reading read() const noexcept {
        Reading now;
        now.loop = loop_.load(std::memory_order_acquire);
        now.epoch = epoch_.load(std::memory_order_relaxed);
        now.epochs = epochs_.load(std::memory_order_relaxed);
        now.in_steps = in_steps_.load(std::memory_order_relaxed);
        now.under_way = under_way_.load(std::memory_order_relaxed);
        now.done = done_.load(std::memory_order_relaxed);
        now.length = {first_.load(std::memory_order_relaxed),
                      total_.load(std::memory_order_relaxed), rows_.load(std::memory_order_relaxed),
                      rows_of_all_.load(std::memory_order_relaxed)};
        return now;
    }

private:
    std::atomic<std::int64_t> epoch_{0};
    std::atomic<std::int64_t> epochs_{0};
    std::atomic<bool> in_steps_{false};
    std::atomic<std::int64_t> loop_{0};
    std::atomic<bool> under_way_{false};
    std::atomic<std::int64_t> first_{0};
    std::atomic<std::int64_t> done_{0};
    std::atomic<std::int64_t> total_{0};
    std::atomic<std::int64_t> rows_{0};
    std::atomic<std::int64_t> rows_of_all_{0};
};

} // namespace rtrain
