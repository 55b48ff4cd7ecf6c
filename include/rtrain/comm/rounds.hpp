// SPDX-License-Identifier: Apache-2.0
/// @file
/// The protocol by which ranks exchange data through shared memory, one round after the other.
///
/// In a round each rank writes its slot, publishes it, and reads everybody's slots once all have
/// published. That is one barrier a round: slots are double, and a rank that writes round k + 2
/// over round k has seen all ranks publish round k + 1, which they do after reading round k.
/// Needs neither MPI nor tensors, so that ThreadSanitizer can watch it with threads for ranks
/// (tests/unit/rounds_test.cpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

namespace rtrain::comm {

/// `Call` is a small trivial type that ranks compare: what they think this round is.
template <class Call>
class Rounds {
public:
    /// Bytes of shared memory that `size` ranks need; zeroed before the first rank starts.
    [[nodiscard]] static constexpr std::size_t bytes_for(int size, std::size_t slot_bytes) {
        return static_cast<std::size_t>(size) * (sizeof(Line) + 2 * slot_bytes);
    }

    /// `slot_bytes`: a multiple of 64.
    Rounds(std::byte* memory, int rank, int size, std::size_t slot_bytes)
        : lines_(reinterpret_cast<Line*>(memory)),
          slots_(memory + static_cast<std::size_t>(size) * sizeof(Line)), slot_bytes_(slot_bytes),
          rank_(rank), size_(size) {
        static_assert(std::atomic<std::uint64_t>::is_always_lock_free); // also between processes
    }

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }
    [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }

    /// This rank's slot for the next publish().
    [[nodiscard]] std::byte* next_slot() const { return slot(rank_, round_ + 1); }

    void publish(const Call& call) {
        ++round_;
        waiting_for_ = 0;
        Line& line = lines_[rank_];
        line.calls[round_ % 2] = call;
        line.round.store(round_, std::memory_order_release);
    }

    /// Whether all ranks have published this round.
    [[nodiscard]] bool done() {
        while (waiting_for_ < size_ &&
               lines_[waiting_for_].round.load(std::memory_order_acquire) >= round_) {
            ++waiting_for_;
        }
        return waiting_for_ == size_;
    }

    /// A rank's slot of the published round; stays readable while the next one is written.
    [[nodiscard]] const std::byte* published_slot(int rank) const { return slot(rank, round_); }

    /// A rank whose call was not this rank's; after done().
    [[nodiscard]] std::optional<int> disagreeing() const {
        for (int rank = 0; rank < size_; ++rank) {
            if (!(call_of(rank) == call_of(rank_))) {
                return rank;
            }
        }
        return std::nullopt;
    }
    [[nodiscard]] const Call& call_of(int rank) const { return lines_[rank].calls[round_ % 2]; }

private:
    /// On a cache line of its own: written by one rank, read by the others.
    struct alignas(64) Line {
        std::atomic<std::uint64_t> round;
        Call calls[2];
    };
    static_assert(sizeof(Line) == 64);

    [[nodiscard]] std::byte* slot(int rank, std::uint64_t round) const {
        return slots_ + (static_cast<std::size_t>(rank) * 2 + round % 2) * slot_bytes_;
    }

    Line* lines_;
    std::byte* slots_;
    std::size_t slot_bytes_;
    int rank_;
    int size_;
    std::uint64_t round_ = 0;
    int waiting_for_ = 0;
};

} // namespace rtrain::comm
