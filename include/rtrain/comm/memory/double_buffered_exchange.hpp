// SPDX-License-Identifier: Apache-2.0
/// @file
/// The protocol by which ranks exchange data through shared memory, in consecutive rounds.
///
/// In a round each rank writes its slot, publishes it, and reads all slots after all ranks have
/// published. That is one barrier a round: slots are double-buffered, and a rank that writes round
/// k + 2 over round k has seen all ranks publish round k + 1, which they do after reading round k.
#pragma once

#include <rtrain/comm/memory/stages.hpp>

#include <cstddef>
#include <cstdint>

namespace rtrain::comm {

template <class Call>
class DoubleBufferedExchange {
public:
    /// Bytes of shared memory that `size` ranks need; zeroed before the first rank starts.
    [[nodiscard]] static constexpr std::size_t bytes_for(int size, std::size_t slot_bytes) {
        return Stages<Call>::bytes_for(size) + static_cast<std::size_t>(size) * 2 * slot_bytes;
    }

    /// `slot_bytes`: a multiple of 64.
    DoubleBufferedExchange(std::byte* memory, int rank, int size, std::size_t slot_bytes)
        : stages_(memory, rank, size), slots_(memory + Stages<Call>::bytes_for(size)),
          slot_bytes_(slot_bytes) {}

    [[nodiscard]] int rank() const noexcept { return stages_.rank(); }
    [[nodiscard]] int size() const noexcept { return stages_.size(); }

    /// See Stages::begin_anew().
    void begin_anew() noexcept { stages_.begin_anew(); }

    /// This rank's slot for the next publish().
    [[nodiscard]] std::byte* next_slot() const { return slot(rank(), stages_.stage() + 1); }
    /// Begins a round: this rank's slot is complete.
    void publish(const Call& call) { stages_.publish(call); }
    /// The ranks in this round; their slots can be read once `stages().poll()` returns true.
    [[nodiscard]] Stages<Call>& stages() noexcept { return stages_; }
    /// A rank's slot of this round; stays readable while the next one is written.
    [[nodiscard]] const std::byte* published_slot(int rank) const {
        return slot(rank, stages_.stage());
    }

private:
    [[nodiscard]] std::byte* slot(int rank, std::uint64_t round) const {
        return slots_ + (static_cast<std::size_t>(rank) * 2 + round % 2) * slot_bytes_;
    }

    Stages<Call> stages_;
    std::byte* slots_;
    std::size_t slot_bytes_;
};

} // namespace rtrain::comm
