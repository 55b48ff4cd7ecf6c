// SPDX-License-Identifier: Apache-2.0
// Who takes which place of an epoch's order, on any number of ranks, also when that changes.
#include <rtrain/data/order/steps.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

using rtrain::data::RowRange;
using rtrain::data::Steps;

namespace {

/// The places that `steps` steps from `taken` on bring, in the order of micro-batches; moves
/// `taken` on. Every micro-batch is checked on the way.
std::vector<std::int64_t> take(const Steps& plan, std::int64_t& taken, std::int64_t steps) {
    std::vector<std::int64_t> places;
    for (; steps > 0 && plan.step_at(taken) > 0; --steps) {
        const std::int64_t step = plan.step_at(taken);
        std::int64_t least = std::numeric_limits<std::int64_t>::max();
        std::int64_t most = 0;
        for (std::int64_t number = 0; number < plan.micro_batches; ++number) {
            const RowRange part = plan.micro_batch(taken, number);
            least = std::min(least, part.end - part.begin);
            most = std::max(most, part.end - part.begin);
            for (std::int64_t place = part.begin; place < part.end; ++place) {
                places.push_back(place);
            }
        }
        REQUIRE(least >= 1); // nobody is left out of a step
        REQUIRE(most <= least + 1);
        REQUIRE(most <= plan.size + 1);
        REQUIRE((!plan.drop_last || (least == plan.size && most == plan.size)));
        taken += step;
    }
    return places;
}

constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();

} // namespace

TEST_CASE("Steps.take_each_row_once_in_order") {
    for (std::int64_t rows = 1; rows <= 60; ++rows) {
        for (const std::int64_t size : {1, 2, 3, 7, 100}) {
            for (std::int64_t micro_batches = 1; micro_batches <= 9; ++micro_batches) {
                CAPTURE(rows);
                CAPTURE(size);
                CAPTURE(micro_batches);
                const Steps plan{rows, size, micro_batches};
                std::int64_t taken = 0;
                const auto places = take(plan, taken, all);
                CHECK(taken == rows);
                const std::int64_t expected = std::max(rows, micro_batches);
                REQUIRE(static_cast<std::int64_t>(places.size()) == expected);
                for (std::int64_t i = 0; i < expected; ++i) { // repeated only to give each one
                    REQUIRE(places[static_cast<std::size_t>(i)] == i % rows);
                }
                std::int64_t counted = 0;
                for (std::int64_t at = 0; plan.step_at(at) > 0; at += plan.step_at(at)) {
                    CHECK(plan.count_from(at) == plan.count_from(0) - counted++);
                }
                CHECK(plan.count_from(0) == counted);

                const Steps whole{rows, size, micro_batches, true};
                taken = 0;
                const auto kept = take(whole, taken, all);
                CHECK(taken == rows / (size * micro_batches) * size * micro_batches);
                CHECK(static_cast<std::int64_t>(kept.size()) == taken);
                CHECK(whole.count_from(0) == rows / (size * micro_batches));
            }
        }
    }
}

TEST_CASE("Steps.go_on_with_the_rest_on_any_number_of_ranks") {
    constexpr std::int64_t rows = 103; // a prime
    for (std::int64_t saved_on = 1; saved_on <= 8; ++saved_on) {
        for (std::int64_t resumed_on = 1; resumed_on <= 8; ++resumed_on) {
            for (const std::int64_t size : {1, 3, 4}) {
                for (std::int64_t stop = 0;; ++stop) {
                    CAPTURE(saved_on);
                    CAPTURE(resumed_on);
                    CAPTURE(size);
                    CAPTURE(stop);
                    std::int64_t taken = 0;
                    auto places = take({rows, size, saved_on}, taken, stop);
                    const bool over = taken == rows;
                    const std::int64_t left = rows - taken;
                    const auto rest = take({rows, size, resumed_on}, taken, all);
                    places.insert(places.end(), rest.begin(), rest.end());
                    REQUIRE(taken == rows);
                    // Fewer rows than ranks are left: these are repeated, no other.
                    const std::int64_t repeated =
                        left > 0 ? std::max<std::int64_t>(resumed_on - left, 0) : 0;
                    REQUIRE(static_cast<std::int64_t>(places.size()) == rows + repeated);
                    for (std::int64_t i = 0; i < rows; ++i) {
                        REQUIRE(places[static_cast<std::size_t>(i)] == i);
                    }
                    if (over) {
                        break;
                    }
                }
            }
        }
    }
}

TEST_CASE("Steps.of_a_fixed_number_of_micro_batches_are_the_same_on_any_number_of_ranks") {
    // 8 micro-batches in a step, also at the end: ranks only divide them otherwise.
    const Steps plan{1001, 4, 8};
    for (std::int64_t taken = 0; plan.step_at(taken) > 0; taken += plan.step_at(taken)) {
        std::int64_t next = taken;
        for (std::int64_t number = 0; number < 8; ++number) {
            const RowRange part = plan.micro_batch(taken, number);
            CHECK(part.begin == next);
            next = part.end;
        }
        CHECK(next == taken + plan.step_at(taken));
    }
}

TEST_CASE("Steps.bear_large_numbers") {
    constexpr std::int64_t huge = std::int64_t{1} << 62;
    const Steps plan{huge, all, 1024};
    CHECK(plan.step_at(0) == huge);
    CHECK(plan.micro_batch(0, 1023) == RowRange{huge / 1024 * 1023, huge});
    CHECK(plan.count_from(0) == 1);
    CHECK(plan.step_at(huge) == 0);
    CHECK(plan.step_at(huge + 5) == 0);
    const Steps fine{huge, 1, 8};
    CHECK(fine.micro_batch(huge - 16, 7) == RowRange{huge - 9, huge - 8});
}

// Means of micro-batches, weighted, have the mean of the step's rows as their mean.
TEST_CASE("Steps.weigh_micro_batches_by_their_rows") {
    for (std::int64_t rows = 1; rows <= 40; ++rows) {
        for (const std::int64_t size : {1, 3, 7}) {
            for (std::int64_t micro_batches = 1; micro_batches <= 6; ++micro_batches) {
                for (const std::int64_t lanes : {0, 4, 6}) {
                    CAPTURE(rows);
                    CAPTURE(size);
                    CAPTURE(micro_batches);
                    CAPTURE(lanes);
                    const Steps plan{rows, size, micro_batches};
                    for (std::int64_t taken = 0; plan.step_at(taken) > 0;
                         taken += plan.step_at(taken)) {
                        const auto step = plan.step_at(taken);
                        double expected = 0;
                        for (auto place = taken; place < taken + step; ++place) {
                            expected +=
                                static_cast<double>(place * place) / static_cast<double>(step);
                        }
                        double mean = 0;
                        for (std::int64_t number = 0; number < micro_batches; ++number) {
                            const auto range = plan.micro_batch(taken, number);
                            auto part = plan.strided_micro_batch(taken, number,
                                                                 std::max<std::int64_t>(lanes, 1));
                            if (lanes == 0) {
                                part = {range.begin, 1, range.end - range.begin};
                            }
                            double sum = 0;
                            for (std::int64_t i = 0; i < part.count; ++i) {
                                const auto place = part.first + i * part.stride;
                                sum += static_cast<double>(place * place);
                            }
                            mean += plan.weight(taken, number, lanes) * sum /
                                    static_cast<double>(part.count * micro_batches);
                        }
                        REQUIRE(mean == doctest::Approx(expected).epsilon(1e-12));
                    }
                }
            }
        }
    }
    CHECK(Steps{24, 4, 3}.weight(0, 1) == 1.0); // to the bit
}
