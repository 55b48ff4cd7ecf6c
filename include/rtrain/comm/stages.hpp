// SPDX-License-Identifier: Apache-2.0
/// @file
/// How far each rank has got, in memory that all see: what every exchange through shared memory
/// waits on. Needs neither MPI nor tensors, so that ThreadSanitizer can watch it, with threads for
/// ranks (tests/unit/shared_memory_test.cpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <vector>

namespace rtrain::comm {

/// Ranks go from stage to stage and tell each other what they think they are doing: a `Call`, a
/// small trivial type that can be compared. What a rank wrote before it published a stage can be
/// read by all who have seen it there.
///
/// Nobody may publish stage k + 1 before it has seen all ranks at k: a rank's call stays as it is
/// until all others have published the stage behind it.
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
    /// Before its first stage, in memory that the same ranks have used. All must have got here
    /// before one goes on.
    void begin_anew() noexcept { lines_[rank_].stage.store(0, std::memory_order_release); }

    /// The stage that this rank has published last; 0 before the first.
    [[nodiscard]] std::uint64_t stage() const noexcept { return stage_; }

    void publish(const Call& call) {
        ++stage_;
        seen_ = 0;
        Line& line = lines_[rank_];
        line.calls[stage_ % 2] = call;
        line.stage.store(stage_, std::memory_order_release);
    }

    /// Whether all ranks have published this stage; never blocks.
    [[nodiscard]] bool done() {
        while (seen_ < size_ && lines_[seen_].stage.load(std::memory_order_acquire) >= stage_) {
            ++seen_;
        }
        return seen_ == size_;
    }

    /// Those that have not.
    [[nodiscard]] std::vector<int> absent() const {
        std::vector<int> ranks;
        for (int rank = 0; rank < size_; ++rank) {
            if (lines_[rank].stage.load(std::memory_order_acquire) < stage_) {
                ranks.push_back(rank);
            }
        }
        return ranks;
    }

    /// A rank whose call is not this rank's; once done().
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
    /// On a cache line of its own: written by one rank, read by the others.
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
