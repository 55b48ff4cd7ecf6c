// SPDX-License-Identifier: Apache-2.0
/// @file
/// A deferred copy of memory, with checksums: made by a background thread during training, and the
/// rest by a writer before it changes the memory. So every writer of such memory first waits for
/// the pending copies: DeferredCopy::finish_all().
#pragma once

#include <rtrain/base/crc32c.hpp>
#include <rtrain/process/context.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace rtrain::process {

class DeferredCopy {
public:
    struct Range {
        const std::byte* from;
        std::byte* to; ///< null: not copied
        std::size_t bytes;
        std::uint32_t* sum = nullptr; ///< if not copied: from checkpoint::sum_of_sums()
    };

    /// `copied` is called once, after everything is copied and before a writer continues. Both
    /// memories must live until then.
    [[nodiscard]] static std::shared_ptr<DeferredCopy> begin(const std::vector<Range>& ranges,
                                                             std::function<void()> copied) {
        std::shared_ptr<DeferredCopy> copy(new DeferredCopy(ranges, std::move(copied)));
        const std::lock_guard lock(all.mutex);
        all.copies.push_back(copy);
        all.count.fetch_add(1);
        return copy;
    }
    DeferredCopy(const DeferredCopy&) = delete;
    DeferredCopy& operator=(const DeferredCopy&) = delete;
    ~DeferredCopy() = default;

    /// Copies the remaining chunks, and returns when everything is copied. Thread-safe.
    void finish() {
        std::size_t mine = 0;
        for (std::size_t i = next_.fetch_add(1); i < chunks_.size(); i = next_.fetch_add(1)) {
            const Range& chunk = chunks_[i];
            if (chunk.to != nullptr) {
                std::memcpy(chunk.to, chunk.from, chunk.bytes);
            } else {
                *chunk.sum = checkpoint::sum_of_sums(chunk.from, chunk.bytes);
            }
            ++mine;
        }
        std::unique_lock lock(mutex_);
        copied_ += mine;
        if (copied_ == chunks_.size() && !is_done_) {
            when_copied_();
            when_copied_ = nullptr; // and what it has held
            is_done_ = true;
            leave_list();
            done_.notify_all();
        }
        done_.wait(lock, [this] { return is_done_; });
    }
    /// The same for the background thread.
    void finish_beside() {
        while (all.held.load() > 0 && !is_done()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        finish();
    }

    /// Call before writing parameters or optimizer state: finishes all pending copies. Costs one
    /// load if there are none.
    static void finish_all() {
        if (all.count.load(std::memory_order_acquire) == 0) {
            return;
        }
        const StepClock::In copying(ProcessContext::current().clock, StepPart::checkpoint);
        std::vector<std::shared_ptr<DeferredCopy>> copies;
        {
            const std::lock_guard lock(all.mutex);
            copies = all.copies;
        }
        for (const auto& copy : copies) {
            copy->finish();
        }
    }

    /// For tests: while it exists, only writers copy.
    class Held {
    public:
        Held() { all.held.fetch_add(1); }
        Held(const Held&) = delete;
        Held& operator=(const Held&) = delete;
        ~Held() { all.held.fetch_sub(1); }
    };

private:
    DeferredCopy(const std::vector<Range>& ranges, std::function<void()> copied)
        : when_copied_(std::move(copied)) {
        constexpr std::size_t most = std::size_t{1} << 20;
        for (const Range& range : ranges) {
            if (range.to == nullptr) {
                chunks_.push_back(range);
                continue;
            }
            for (std::size_t begin = 0; begin < range.bytes; begin += most) {
                chunks_.push_back(
                    {range.from + begin, range.to + begin, std::min(most, range.bytes - begin)});
            }
        }
    }

    [[nodiscard]] bool is_done() const {
        const std::lock_guard lock(mutex_);
        return is_done_;
    }
    void leave_list() {
        const std::lock_guard lock(all.mutex);
        std::erase_if(all.copies, [this](const auto& copy) { return copy.get() == this; });
        all.count.fetch_sub(1, std::memory_order_release);
    }

    /// Static, because a writer of memory has to wait for each copy of it.
    struct All {
        std::mutex mutex;
        std::vector<std::shared_ptr<DeferredCopy>> copies;
        std::atomic<int> count;
        std::atomic<int> held;
    };
    static inline All all{};

    std::vector<Range> chunks_;
    std::atomic<std::size_t> next_{0}; ///< the next chunk
    mutable std::mutex mutex_;
    std::condition_variable done_;
    std::size_t copied_ = 0;
    bool is_done_ = false;
    std::function<void()> when_copied_;
};

} // namespace rtrain::process
