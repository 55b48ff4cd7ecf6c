// SPDX-License-Identifier: Apache-2.0
/// @file
/// The accumulated state of a metric, and how the states of two ranks are merged. Counts are
/// integers, so their sums have the same bits in any order. Cost tier 0: std only.
#pragma once

#include <rtrain/base/packed.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace rtrain::metric {

/// Mean and squared deviations, without the cancellation of sums of squares: B. Welford,
/// Technometrics 4, 1962; merge() follows T. Chan, G. Golub, R. LeVeque, 1979.
struct Spread {
    std::int64_t count = 0;
    double mean = 0;
    double squares = 0; ///< sum of squared deviations from the mean

    void see(double value) {
        const double away = value - mean;
        mean += away / static_cast<double>(++count);
        squares += away * (value - mean);
    }
    void merge(const Spread& next) {
        if (count == 0 || next.count == 0) {
            *this = count == 0 ? next : *this;
            return;
        }
        const double its_part =
            static_cast<double>(next.count) / static_cast<double>(count + next.count);
        const double away = next.mean - mean;
        squares += next.squares + away * away * (static_cast<double>(count) * its_part);
        mean += away * its_part;
        count += next.count;
    }
};

/// A metric chooses the number of entries of each kind once, except for samples.
struct Tally {
    std::vector<std::int64_t> counts{}; ///< added up
    std::vector<double> sums{};         ///< added up
    std::vector<double> maxima{};       ///< element-wise maximum; NaN if either is NaN
    std::vector<double> samples{};      ///< concatenated; any number
    std::vector<Spread> spreads{};      ///< merged

    void clear() {
        std::ranges::fill(counts, 0);
        std::ranges::fill(sums, 0.0);
        std::ranges::fill(maxima, -std::numeric_limits<double>::infinity());
        samples.clear();
        std::ranges::fill(spreads, Spread());
    }

    /// Returns an empty tally with the same shape as this one.
    [[nodiscard]] Tally empty() const {
        Tally other{counts, sums, maxima, {}, spreads};
        other.clear();
        return other;
    }

    [[nodiscard]] bool is_like(const Tally& other) const {
        return counts.size() == other.counts.size() && sums.size() == other.sums.size() &&
               maxima.size() == other.maxima.size() && spreads.size() == other.spreads.size();
    }

    void see_maximum(std::size_t i, double value) {
        if (value > maxima[i] || std::isnan(value)) {
            maxima[i] = value;
        }
    }

    /// Appends the state of `next`, which is_like() this.
    void merge(const Tally& next) {
        for (std::size_t i = 0; i < counts.size(); ++i) {
            counts[i] += next.counts[i];
        }
        for (std::size_t i = 0; i < sums.size(); ++i) {
            sums[i] += next.sums[i];
        }
        for (std::size_t i = 0; i < maxima.size(); ++i) {
            see_maximum(i, next.maxima[i]);
        }
        samples.insert(samples.end(), next.samples.begin(), next.samples.end());
        for (std::size_t i = 0; i < spreads.size(); ++i) {
            spreads[i].merge(next.spreads[i]);
        }
    }

    /// Packs all but the samples, for which it packs their number: equally many bytes on all ranks.
    void pack(rtrain::detail::Packer& out) const {
        out.put_all(counts);
        out.put_all(sums);
        out.put_all(maxima);
        for (const auto& [count, mean, squares] : spreads) {
            out.put(count);
            out.put(mean);
            out.put(squares);
        }
        out.put(samples.size());
    }
    /// Reverses pack(); returns the number of samples.
    [[nodiscard]] std::size_t unpack(rtrain::detail::Unpacker& in) {
        in.take_all(counts);
        in.take_all(sums);
        in.take_all(maxima);
        in.take_all(spreads);
        return in.take<std::size_t>();
    }
    /// Number of bytes that pack() writes.
    [[nodiscard]] std::size_t packed_size() const noexcept {
        return counts.size() * sizeof(std::int64_t) +
               (sums.size() + maxima.size()) * sizeof(double) + spreads.size() * sizeof(Spread) +
               sizeof(std::size_t);
    }
};

} // namespace rtrain::metric
