// SPDX-License-Identifier: Apache-2.0
// The order of an epoch over blocks, and who takes which place of it.
#include <rtrain/data/order/steps.hpp>
#include <rtrain/data/order/stream_order.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

using rtrain::data::hash_of;
using rtrain::data::Steps;
using rtrain::data::StreamOrder;
using rtrain::data::StridedPlaces;

namespace {

using Numbers = std::vector<std::int64_t>;

/// The row at each place of an epoch.
Numbers rows_of(const StreamOrder& order, const Numbers& ends) {
    Numbers rows;
    for (std::int64_t place = 0; place < order.rows(); ++place) {
        const auto [lane, window, row] = order.find(place);
        std::int64_t left = order.order_of(lane, window)[row];
        for (const auto& [block, first_row, length] : order.pieces_of(lane, window)) {
            if (left < length) {
                rows.push_back((block == 0 ? 0 : ends[static_cast<std::size_t>(block) - 1]) +
                               first_row + left);
                break;
            }
            left -= length;
        }
    }
    return rows;
}

const Numbers ends{5, 5, 8, 15, 16, 20};

} // namespace

TEST_CASE("StreamOrder.is_the_same_for_ever") {
    // Checkpoints count in it: 3 lanes, windows of 4 rows, seed 7, epoch 2.
    CHECK(rows_of({ends, {3, 4}, true, hash_of(7, 2)}, ends) ==
          Numbers{0, 7, 14, 3, 8, 17, 2, 10, 18, 1, 9, 16, 6, 11, 15, 4, 13, 19, 5, 12});
    CHECK(rows_of({ends, {3, 4}, false, hash_of(7, 2)}, ends) ==
          Numbers{0, 7, 14, 1, 8, 15, 2, 9, 16, 3, 10, 17, 4, 11, 18, 5, 12, 19, 6, 13});
}

TEST_CASE("StreamOrder.has_every_row_once") {
    for (std::int64_t lanes = 1; lanes <= 25; ++lanes) { // more than there are rows, too
        for (std::int64_t window = 1; window <= 8; ++window) {
            CAPTURE(lanes);
            CAPTURE(window);
            std::set<Numbers> different;
            for (std::uint64_t key = 0; key < 3; ++key) {
                auto rows = rows_of({ends, {lanes, window}, true, key}, ends);
                different.insert(rows);
                std::ranges::sort(rows);
                Numbers all(20);
                std::iota(all.begin(), all.end(), 0);
                CHECK(rows == all);
            }
            CHECK(different.size() == 3);
        }
    }
}

TEST_CASE("StreamOrder.finds_places_among_very_many_rows") {
    const std::int64_t many = std::int64_t{1} << 50;
    const StreamOrder order({many, many + 7}, {24, 1 << 20}, true, 1);
    const auto [lane, window, row] = order.find(many);
    CHECK(lane == many % 24);
    const auto pieces = order.pieces_of(lane, window);
    REQUIRE(!pieces.empty());
    CHECK(pieces.front().rows <= 1 << 20);
    CHECK(order.order_of(lane, window)[row] < 1 << 20);
}

TEST_CASE("Steps.of_strided_micro_batches_are_the_same_places") {
    for (const std::int64_t rows : {1, 7, 24, 100, 241}) {
        for (const std::int64_t lanes : {1, 2, 12, 24}) {
            for (const std::int64_t micro_batches : {1, 2, 3, 5, 6, 8, 16, 24, 36, 50}) {
                CAPTURE(rows);
                CAPTURE(lanes);
                CAPTURE(micro_batches);
                const Steps plan{rows, 3, micro_batches};
                for (std::int64_t taken = rows / 5; plan.step_at(taken) > 0;) {
                    const std::int64_t step = plan.step_at(taken);
                    std::vector<int> counts(static_cast<std::size_t>(step));
                    std::int64_t least = step;
                    std::int64_t most = 0;
                    for (std::int64_t number = 0; number < micro_batches; ++number) {
                        const StridedPlaces part = plan.strided_micro_batch(taken, number, lanes);
                        least = std::min(least, part.count);
                        most = std::max(most, part.count);
                        for (std::int64_t i = 0; i < part.count; ++i) {
                            const std::int64_t place = part.first + i * part.stride;
                            ++counts.at(static_cast<std::size_t>(place - taken));
                        }
                        if (step >= micro_batches && lanes % micro_batches == 0) {
                            CHECK(part.first % micro_batches == number);
                        }
                    }
                    CHECK(least >= 1); // nobody is left out
                    CHECK(most <= least + 1);
                    CHECK(std::ranges::min(counts) >= 1);
                    CHECK((step < micro_batches || std::ranges::max(counts) == 1));
                    taken += step;
                }
            }
        }
    }
}

TEST_CASE("Steps.of_ranks_that_divide_lanes_share_none") {
    for (const std::int64_t lanes : {12, 24, 30}) {
        for (const std::int64_t passes : {1, 2, 3, 5, 8, 16}) {
            for (std::int64_t ranks = 1; ranks <= lanes; ++ranks) {
                const Steps plan{100'000, 7, ranks * passes};
                std::vector<std::set<std::int64_t>> ranks_of(static_cast<std::size_t>(lanes));
                for (std::int64_t number = 0; number < plan.micro_batches; ++number) {
                    const auto part = plan.strided_micro_batch(plan.step_at(0), number, lanes);
                    for (std::int64_t i = 0; i < part.count; ++i) {
                        ranks_of[static_cast<std::size_t>((part.first + i * part.stride) % lanes)]
                            .insert(number / passes);
                    }
                }
                if (lanes % ranks == 0) {
                    CAPTURE(lanes);
                    CAPTURE(passes);
                    CAPTURE(ranks);
                    CHECK(std::ranges::all_of(
                        ranks_of, [](const auto& of_lane) { return of_lane.size() <= 1; }));
                }
            }
        }
    }
}
