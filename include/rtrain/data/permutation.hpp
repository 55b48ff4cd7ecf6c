// SPDX-License-Identifier: Apache-2.0
/// @file
/// A permutation of [0, size) that is computed element by element from a key, without a table.
///
/// A Feistel network permutes the numbers of the least power of two that holds `size`; a number
/// that falls outside is permuted again until it falls inside (cycle walking), which takes less
/// than two turns on average from 128 elements on. Sources: M. Luby, C. Rackoff, "How to construct
/// pseudorandom permutations from pseudorandom functions", 1988; J. Black, P. Rogaway, "Ciphers
/// with arbitrary finite domains", 2002, section 4; R. Mitchell et al., "Bandwidth-optimal random
/// shuffling for GPUs", 2022, who shuffle with such networks. The round function is the finaliser
/// of SplitMix64: G. Steele et al., "Fast splittable pseudorandom number generators", 2014. It
/// shuffles well and hides nothing: this is no encryption.
/// Cost tier 0: std only.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace rtrain::data {

/// One step of SplitMix64: a bijection that spreads every bit over all.
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/// A number that depends on all of these and on their order.
template <class... Numbers>
[[nodiscard]] constexpr std::uint64_t hash_of(Numbers... numbers) noexcept {
    std::uint64_t hash = 0;
    ((hash = mix_bits(hash ^ mix_bits(static_cast<std::uint64_t>(numbers)))), ...);
    return hash;
}

/// The same for the same size and key everywhere and in every version: checkpoints rely on it.
class Permutation {
public:
    /// `size` is at least 1.
    constexpr Permutation(std::int64_t size, std::uint64_t key) noexcept
        : size_(static_cast<std::uint64_t>(size)) {
        const int bits = std::max(least_bits, static_cast<int>(std::bit_width(size_ - 1)));
        low_bits_ = bits / 2;
        high_bits_ = bits - low_bits_;
        for (std::size_t i = 0; i < rounds; ++i) {
            keys_[i] = hash_of(key, i);
        }
    }

    /// The element at `position`, which is in [0, size).
    [[nodiscard]] constexpr std::int64_t operator[](std::int64_t position) const noexcept {
        auto x = static_cast<std::uint64_t>(position);
        do {
            x = permute(x);
        } while (x >= size_);
        return static_cast<std::int64_t>(x);
    }

private:
    static constexpr std::size_t rounds = 8; ///< even, so that halves end as wide as they began
    /// Halves of fewer bits than 3 and 4 would leave few different permutations.
    static constexpr int least_bits = 7;

    [[nodiscard]] constexpr std::uint64_t permute(std::uint64_t x) const noexcept {
        const std::uint64_t low_mask = (std::uint64_t{1} << low_bits_) - 1;
        const std::uint64_t high_mask = (std::uint64_t{1} << high_bits_) - 1;
        std::uint64_t low = x & low_mask;
        std::uint64_t high = x >> low_bits_;
        for (std::size_t i = 0; i < rounds; i += 2) {
            high ^= mix_bits(low ^ keys_[i]) & high_mask;
            low ^= mix_bits(high ^ keys_[i + 1]) & low_mask;
        }
        return (high << low_bits_) | low;
    }

    std::uint64_t size_;
    int low_bits_ = 0;
    int high_bits_ = 0;
    std::array<std::uint64_t, rounds> keys_{};
};

} // namespace rtrain::data
