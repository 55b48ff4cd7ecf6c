// SPDX-License-Identifier: Apache-2.0
/// @file
/// Progress of each rank, in shared memory: every exchange through shared memory waits on it.
/// Independent of MPI and tensors, so that ThreadSanitizer can check it, with threads as ranks
/// (tests/comm/memory/shared_memory_test.cpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <vector>

namespace rtrain::comm {

/// Ranks advance from stage to stage and publish the call that they are making: a `Call`, a small
/// trivial type that can be compared. Data that a rank wrote before it published a stage can be
/// read by all that have seen it there.
///
/// A rank may not publish stage k + 1 before it has seen all ranks at k: a rank's call is unchanged
/// until all others have published the next stage.
template <class Call>
class Stages {
public:
    /// Bytes of shared memory for `size` ranks; zeroed before the first one starts.
    [[nodiscard]] static constexpr std::size_t bytes_for(int size) {
        return static_cast<std::size_t>(size) * sizeof(Line);
    }

    Stages(std::byte* memory, int rank, int size)
        : lines_(reinterpret_cast<Line*>(memory)), rank_(rank), size_(size) {
        static_assert(std::atomic<std::uint64_t>::is_always_lock_free); // also between processes
    }

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }
    /// Called before the first stage, in memory reused by the same ranks. All must have called it
    /// before one continues.
    void begin_anew() noexcept { lines_[rank_].stage.store(0, std::memory_order_release); }

    /// The last stage that this rank has published; 0 before the first.
    [[nodiscard]] std::uint64_t stage() const noexcept { return stage_; }

    void publish(const Call& call) {
        ++stage_;
        seen_ = 0;
        Line& line = lines_[rank_];
        line.calls[stage_ % 2] = call;
        line.stage.store(stage_, std::memory_order_release);
    }

    /// True if all ranks have published this stage; never blocks.
    [[nodiscard]] bool poll() {
        while (seen_ < size_ && lines_[seen_].stage.load(std::memory_order_acquire) >= stage_) {
            ++seen_;
        }
        return seen_ == size_;
    }

    /// Ranks that have not published it.
    [[nodiscard]] std::vector<int> absent() const {
        std::vector<int> ranks;
        for (int rank = 0; rank < size_; ++rank) {
            if (lines_[rank].stage.load(std::memory_order_acquire) < stage_) {
                ranks.push_back(rank);
            }
        }
        return ranks;
    }

    /// Returns a rank whose call differs from this rank's; call it once poll() returns true.
    [[nodiscard]] std::optional<int> disagreeing() const {
        for (int rank = 0; rank < size_; ++rank) {
            if (!(call_of(rank) == call_of(rank_))) {
                return rank;
            }
        }
        return std::nullopt;
    }
    [[nodiscard]] const Call& call_of(int rank) const { return lines_[rank].calls[stage_ % 2]; }

private:
    /// On a separate cache line: written by one rank, read by the others.
    struct alignas(64) Line {
        std::atomic<std::uint64_t> stage;
        Call calls[2];
    };
    static_assert(sizeof(Line) == 64);

    Line* lines_;
    int rank_;
    int size_;
    std::uint64_t stage_ = 0;
    int seen_ = 0;
};

} // namespace rtrain::comm
