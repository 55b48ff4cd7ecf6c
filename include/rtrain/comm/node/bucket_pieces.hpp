// SPDX-License-Identifier: Apache-2.0
/// @file
/// A second memory for large pieces of a bucket. A rank whose gradient is already there, because
/// libtorch allocated it there, need not copy it into the bucket: the others read it in place.
#pragma once

#include <rtrain/comm/kernels/slices.hpp>
#include <rtrain/comm/memory/shared_memory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace rtrain::comm {

class BucketPieces {
public:
    /// `pieces`: ascending, without overlap, of float32. `share(bytes)` returns zeroed memory of
    /// the node's `size` ranks. Collective if that is.
    template <class Share>
    BucketPieces(std::vector<Piece> pieces, int rank, int size, const Share& share)
        : pieces_(std::move(pieces)), rank_(rank), size_(size) {
        std::size_t bytes = round_up(pieces_.size() * sizeof(float));
        for (const Piece& piece : pieces_) {
            offsets_.push_back(bytes);
            bytes = round_up(bytes + static_cast<std::size_t>(piece.elements) * sizeof(float));
        }
        stride_ = bytes;
        memory_ = share(static_cast<std::size_t>(size_) * stride_);
    }

    [[nodiscard]] std::span<const Piece> pieces() const noexcept { return pieces_; }
    /// Where a rank may have a piece.
    [[nodiscard]] std::byte* data(int rank, std::size_t piece) const {
        return begin_of(rank) + offsets_[piece];
    }
    [[nodiscard]] std::byte* mine(std::size_t piece) const { return data(rank_, piece); }

    /// This rank's piece is here, to be multiplied by `factor`; 0: it is in the bucket. Takes
    /// effect for other ranks with the next stage that this rank publishes.
    void use(std::size_t piece, float factor) { factors_of(rank_)[piece] = factor; }
    [[nodiscard]] float factor(int rank, std::size_t piece) const {
        return factors_of(rank)[piece];
    }
    /// True if some rank uses some piece.
    [[nodiscard]] bool any() const {
        for (int rank = 0; rank < size_; ++rank) {
            const float* const factors = factors_of(rank);
            if (std::any_of(factors, factors + pieces_.size(), [](float it) { return it != 0; })) {
                return true;
            }
        }
        return false;
    }

private:
    static constexpr std::size_t line = 64; ///< the alignment of libtorch's CPU allocator
    [[nodiscard]] static std::size_t round_up(std::size_t bytes) {
        return (bytes + line - 1) / line * line;
    }
    [[nodiscard]] std::byte* begin_of(int rank) const {
        return memory_.data() + static_cast<std::size_t>(rank) * stride_;
    }
    [[nodiscard]] float* factors_of(int rank) const {
        return reinterpret_cast<float*>(begin_of(rank));
    }

    std::vector<Piece> pieces_;
    std::vector<std::size_t> offsets_; ///< in a rank's part, in bytes
    int rank_;
    int size_;
    std::size_t stride_ = 0;
    SharedMemory memory_; ///< for each rank: a factor per piece, then the pieces
};

} // namespace rtrain::comm
