// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random: random numbers for searches. Standard libraries differ in their distributions, so the
/// arithmetic is implemented here: a seed gives the same bits everywhere. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/tune/search/normal.hpp>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <array>
#include <cmath>
#include <cstdint>

namespace rtrain::tune {

/// xoshiro256** 1.0 of Blackman and Vigna (2018), seeded with splitmix64.
class Random {
public:
    explicit Random(std::uint64_t seed = 0) noexcept {
        for (std::uint64_t& word : words_) {
            seed += 0x9e3779b97f4a7c15U;
            std::uint64_t mixed = seed;
            mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
            mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
            word = mixed ^ (mixed >> 31U);
        }
    }

    /// 64 random bits.
    [[nodiscard]] std::uint64_t next() noexcept {
        const std::uint64_t result = rotated(words_[1] * 5, 7) * 9;
        const std::uint64_t shifted = words_[1] << 17U;
        words_[2] ^= words_[0];
        words_[3] ^= words_[1];
        words_[1] ^= words_[2];
        words_[0] ^= words_[3];
        words_[2] ^= shifted;
        words_[3] = rotated(words_[3], 45);
        return result;
    }

    /// In [0, 1), a multiple of 2^-53.
    [[nodiscard]] double uniform() noexcept { return static_cast<double>(next() >> 11U) * 0x1p-53; }

    /// In [low, high); for `low` < `high`.
    [[nodiscard]] double uniform(double low, double high) noexcept {
        const double part = uniform();
        const double width = high - low; // infinite for -1e308 and 1e308
        const double drawn =
            std::isfinite(width) ? low + part * width : low * (1 - part) + high * part;
        return drawn < high ? drawn : std::nextafter(high, low); // the sum may have been rounded up
    }

    /// In [0, count), each equally likely; `count` > 0. Numbers that would favor some values are
    /// redrawn.
    [[nodiscard]] std::uint64_t below(std::uint64_t count) noexcept {
        const std::uint64_t favoured = (0 - count) % count; // 2^64 modulo count
        std::uint64_t drawn = next();
        while (drawn < favoured) {
            drawn = next();
        }
        return drawn % count;
    }

    /// In (0, 1): for inverses of distributions.
    [[nodiscard]] double quantile() noexcept {
        return (static_cast<double>(next() >> 12U) + 0.5) * 0x1p-52;
    }

    /// From the standard normal distribution.
    [[nodiscard]] double normal() noexcept { return internal::normal_quantile(quantile()); }

    /// For load(), which continues from this state.
    [[nodiscard]] boost::json::value save() const {
        boost::json::array words;
        for (const std::uint64_t word : words_) {
            words.emplace_back(static_cast<std::int64_t>(word)); // readers lack larger integers
        }
        return words;
    }
    void load(const boost::json::value& saved) {
        for (std::size_t i = 0; i < words_.size(); ++i) {
            words_[i] = static_cast<std::uint64_t>(saved.as_array().at(i).as_int64());
        }
    }

private:
    [[nodiscard]] static std::uint64_t rotated(std::uint64_t word, unsigned bits) noexcept {
        return (word << bits) | (word >> (64U - bits));
    }

    std::array<std::uint64_t, 4> words_{};
};

} // namespace rtrain::tune
