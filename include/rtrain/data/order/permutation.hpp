// SPDX-License-Identifier: Apache-2.0
/// @file
/// A permutation of [0, size), computed element by element from a key, without a table.
///
/// A Feistel network permutes the numbers of the least power of two that holds `size`; a number
/// that falls outside is permuted again until it falls inside (cycle walking). That takes less than
/// two turns on average from 128 elements on. Sources: M. Luby, C. Rackoff, "How to construct
/// pseudorandom permutations from pseudorandom functions", 1988; J. Black, P. Rogaway, "Ciphers
/// with arbitrary finite domains", 2002, section 4; R. Mitchell et al., "Bandwidth-optimal random
/// shuffling for GPUs", 2022, who shuffle with such networks. The round function is the finaliser
/// of SplitMix64: G. Steele et al., "Fast splittable pseudorandom number generators", 2014. It
/// shuffles well, but is not encryption. Cost tier 0: std only.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rtrain::data {

/// One step of SplitMix64: a bijection in which every input bit affects all output bits.
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/// Hashes all of these numbers and their order.
template <class... Numbers>
[[nodiscard]] constexpr std::uint64_t hash_of(Numbers... numbers) noexcept {
    std::uint64_t hash = 0;
    ((hash = mix_bits(hash ^ mix_bits(static_cast<std::uint64_t>(numbers)))), ...);
    return hash;
}

/// A permutation that is the same for the same size and key everywhere and in every version:
/// checkpoints rely on it.
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
        return walk(static_cast<std::uint64_t>(position));
    }

    /// Computes the elements at [begin, begin + elements.size()), a few times as fast as one by
    /// one. Turns of one number depend on each other; those of several numbers do not.
    constexpr void fill(std::int64_t begin, std::span<std::int64_t> elements) const noexcept {
        std::size_t next = 0;
        if (constexpr std::size_t abreast = 8; elements.size() >= abreast) {
            std::array<std::uint64_t, abreast> numbers{};
            std::array<std::size_t, abreast> places{};
            for (; next < abreast; ++next) {
                numbers[next] = static_cast<std::uint64_t>(begin) + next;
                places[next] = next;
            }
            while (next + abreast <= elements.size()) {
                permute_all(numbers);
                for (std::size_t i = 0; i < abreast; ++i) { // without branches
                    const bool is_inside = numbers[i] < size_;
                    elements[places[i]] = static_cast<std::int64_t>(numbers[i]);
                    places[i] = is_inside ? next : places[i];
                    numbers[i] = is_inside ? static_cast<std::uint64_t>(begin) + next : numbers[i];
                    next += is_inside ? 1 : 0;
                }
            }
            for (std::size_t i = 0; i < abreast; ++i) {
                elements[places[i]] = walk(numbers[i]);
            }
        }
        for (; next < elements.size(); ++next) {
            elements[next] = (*this)[begin + static_cast<std::int64_t>(next)];
        }
    }

private:
    static constexpr std::size_t rounds = 8; ///< even, so that both halves keep their widths
    /// Halves of fewer bits than 3 and 4 would give few different permutations.
    static constexpr int least_bits = 7;

    [[nodiscard]] constexpr std::int64_t walk(std::uint64_t x) const noexcept {
        std::array<std::uint64_t, 1> number{x};
        do {
            permute_all(number);
        } while (number[0] >= size_);
        return static_cast<std::int64_t>(number[0]);
    }

    template <std::size_t n>
    constexpr void permute_all(std::array<std::uint64_t, n>& numbers) const noexcept {
        const std::uint64_t low_mask = (std::uint64_t{1} << low_bits_) - 1;
        const std::uint64_t high_mask = (std::uint64_t{1} << high_bits_) - 1;
        std::array<std::uint64_t, n> low{};
        std::array<std::uint64_t, n> high{};
        for (std::size_t k = 0; k < n; ++k) {
            low[k] = numbers[k] & low_mask;
            high[k] = numbers[k] >> low_bits_;
        }
        for (std::size_t i = 0; i < rounds; i += 2) {
            for (std::size_t k = 0; k < n; ++k) {
                high[k] ^= mix_bits(low[k] ^ keys_[i]) & high_mask;
            }
            for (std::size_t k = 0; k < n; ++k) {
                low[k] ^= mix_bits(high[k] ^ keys_[i + 1]) & low_mask;
            }
        }
        for (std::size_t k = 0; k < n; ++k) {
            numbers[k] = (high[k] << low_bits_) | low[k];
        }
    }

    std::uint64_t size_;
    int low_bits_ = 0;
    int high_bits_ = 0;
    std::array<std::uint64_t, rounds> keys_{};
};

} // namespace rtrain::data
