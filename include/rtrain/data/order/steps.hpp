// SPDX-License-Identifier: Apache-2.0
/// @file
/// Divides an epoch's rows into steps, and a step into micro-batches: arithmetic on positions in
/// the epoch, whatever its order. Cost tier 0: std only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace rtrain::data {

/// Positions [begin, end) in the order of an epoch.
struct RowRange {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    friend bool operator==(const RowRange&, const RowRange&) = default;
};

/// Positions first, first + stride, and so on.
struct StridedPlaces {
    std::int64_t first = 0;
    std::int64_t stride = 1;
    std::int64_t count = 0;
    friend bool operator==(const StridedPlaces&, const StridedPlaces&) = default;
};

/// Part `number` of `parts` that divide rows as evenly as possible.
[[nodiscard]] constexpr RowRange even_part(std::int64_t rows, std::int64_t parts,
                                           std::int64_t number) noexcept {
    const auto begin_of = [&](std::int64_t i) { // i * rows / parts without overflow
        return rows / parts * i + rows % parts * i / parts;
    };
    return {begin_of(number), begin_of(number + 1)};
}

/// The number of rows in lane `lane` when rows are dealt out to `lanes` in turn.
[[nodiscard]] constexpr std::int64_t rows_of_lane(std::int64_t rows, std::int64_t lanes,
                                                  std::int64_t lane) noexcept {
    return rows / lanes + (lane < rows % lanes ? 1 : 0);
}

/// A step takes the next micro_batches × size rows of the order, and its micro-batches divide them
/// in order. Every step gives each micro-batch at least one row:
///
/// - Rows at the end that do not fill a step are divided as evenly as possible: micro-batches
///   differ by one row. If there are fewer rows than micro-batches, they go into the previous step.
/// - Only if there are fewer rows than micro-batches from the start (a very small data set, or a
///   run resumed there) are these rows repeated. With each_once they are not, and the last
///   micro-batches are empty.
/// - With drop_last every step is whole; rows that do not fill one are left out.
///
/// An epoch can be entered at any position; the steps are then those of the remaining rows.
struct Steps {
    std::int64_t rows = 0;          ///< of the whole epoch
    std::int64_t size = 1;          ///< rows of a micro-batch, at least 1
    std::int64_t micro_batches = 1; ///< in a step, at least 1
    bool drop_last = false;
    bool each_once = false;

    /// The number of rows in the step after the first `taken` rows; 0 at the end of the epoch.
    [[nodiscard]] constexpr std::int64_t step_at(std::int64_t taken) const noexcept {
        const std::int64_t left = rows - taken;
        if (left <= 0 || !fills_step(left)) {
            return drop_last ? 0 : std::max<std::int64_t>(left, 0);
        }
        const std::int64_t whole = size * micro_batches;
        return !drop_last && left - whole < micro_batches ? left : whole;
    }

    /// The rows of micro-batch `number` (from 0) of that step.
    [[nodiscard]] constexpr RowRange micro_batch(std::int64_t taken,
                                                 std::int64_t number) const noexcept {
        const std::int64_t step = step_at(taken);
        if (step < micro_batches) {
            if (each_once) {
                return {taken + std::min(number, step), taken + std::min(number + 1, step)};
            }
            const std::int64_t begin = step == 0 ? taken : taken + number % step;
            return {begin, begin + std::min<std::int64_t>(step, 1)};
        }
        const RowRange part = even_part(step, micro_batches, number);
        return {taken + part.begin, taken + part.end};
    }

    /// The same for an order in `lanes`, position p in lane p % lanes. Micro-batch m takes the
    /// positions with p % micro_batches == m, and so keeps to some of the lanes. Ranks take
    /// consecutive micro-batches; if `lanes` is not a multiple of micro_batches, numbers are
    /// swapped so that ranks whose number divides `lanes` still share none.
    [[nodiscard]] constexpr StridedPlaces strided_micro_batch(std::int64_t taken,
                                                              std::int64_t number,
                                                              std::int64_t lanes) const noexcept {
        const std::int64_t step = step_at(taken);
        const std::int64_t apart = std::gcd(lanes, micro_batches); // p % apart groups lanes
        const std::int64_t together = micro_batches / apart;
        const std::int64_t remainder = number % together * apart + number / together;
        std::int64_t offset = remainder - taken % micro_batches;
        offset += offset < 0 ? micro_batches : 0;
        if (offset >= step) { // fewer rows than micro-batches
            if (each_once) {
                return {taken, micro_batches, 0};
            }
            return {step == 0 ? taken : taken + number % step, micro_batches,
                    std::min<std::int64_t>(step, 1)};
        }
        return {taken + offset, micro_batches, (step - offset - 1) / micro_batches + 1};
    }

    /// The factor that makes the mean of means over micro-batches the mean over the rows of the
    /// step: 1 if all micro-batches have equally many. `lanes`: of strided ones; else 0.
    [[nodiscard]] constexpr double weight(std::int64_t taken, std::int64_t number,
                                          std::int64_t lanes = 0) const noexcept {
        const auto part = [&](std::int64_t of) {
            const RowRange range = micro_batch(taken, of);
            return lanes > 0 ? strided_micro_batch(taken, of, lanes)
                             : StridedPlaces{range.begin, 1, range.end - range.begin};
        };
        const std::int64_t step = step_at(taken);
        const StridedPlaces mine = part(number);
        std::int64_t copies = step < micro_batches ? 0 : 1; // of rows that are repeated
        for (std::int64_t of = 0; step < micro_batches && of < micro_batches; ++of) {
            copies += part(of).first == mine.first ? 1 : 0;
        }
        return static_cast<double>(mine.count * micro_batches) / static_cast<double>(step * copies);
    }

    /// The number of steps from `taken` to the end of the epoch.
    [[nodiscard]] constexpr std::int64_t count_from(std::int64_t taken) const noexcept {
        const std::int64_t left = rows - taken;
        if (left <= 0 || !fills_step(left)) {
            return left <= 0 || drop_last ? 0 : 1;
        }
        const std::int64_t whole = size * micro_batches;
        return left / whole + (!drop_last && left % whole >= micro_batches ? 1 : 0);
    }

private:
    /// Also correct if size × micro_batches overflows.
    [[nodiscard]] constexpr bool fills_step(std::int64_t left) const noexcept {
        return size <= left / micro_batches;
    }
};

} // namespace rtrain::data
