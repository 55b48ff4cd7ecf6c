// SPDX-License-Identifier: Apache-2.0
// The keyed permutation: that it is one, that it stays the same, and that no test sees order in it.
#include <rtrain/data/order/permutation.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

using rtrain::data::hash_of;
using rtrain::data::Permutation;

namespace {

std::vector<std::int64_t> all_of(std::int64_t size, std::uint64_t key) {
    const Permutation permutation(size, key);
    std::vector<std::int64_t> elements;
    for (std::int64_t place = 0; place < size; ++place) {
        elements.push_back(permutation[place]);
    }
    return elements;
}

/// Pearson's statistic as a distance from its mean in standard deviations.
double deviation(const std::vector<double>& counts, const std::vector<double>& expected,
                 double freedom, double mean) {
    double statistic = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        statistic += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
    }
    return (statistic - mean) / std::sqrt(2 * freedom);
}

/// Sizes around powers of two, primes, and small ones.
const std::vector<std::int64_t> sizes = [] {
    std::vector<std::int64_t> some(300);
    std::iota(some.begin(), some.end(), 1);
    for (const std::int64_t size : {509, 997, 1009, 7919, 60000, 65537, 104729}) {
        some.push_back(size);
    }
    for (int power = 9; power <= 17; ++power) {
        for (const std::int64_t beside : {-1, 0, 1}) {
            some.push_back((std::int64_t{1} << power) + beside);
        }
    }
    return some;
}();

} // namespace

TEST_CASE("Permutation.has_every_element_once") {
    for (const std::int64_t size : sizes) {
        CAPTURE(size);
        for (const std::uint64_t key : {0U, 1U, 0xffffffffU}) {
            auto elements = all_of(size, key);
            std::sort(elements.begin(), elements.end());
            std::vector<std::int64_t> expected(elements.size());
            std::iota(expected.begin(), expected.end(), 0);
            REQUIRE(elements == expected);
        }
    }
}

TEST_CASE("Permutation.fills_with_the_same_elements") {
    for (const std::int64_t size : sizes) {
        CAPTURE(size);
        const auto elements = all_of(size, 5);
        const Permutation permutation(size, 5);
        for (const std::int64_t begin : {std::int64_t{0}, size / 3, size}) {
            std::vector<std::int64_t> rest(static_cast<std::size_t>(size - begin), -1);
            permutation.fill(begin, rest);
            REQUIRE(std::equal(rest.begin(), rest.end(), elements.begin() + begin));
        }
    }
}

TEST_CASE("Permutation.is_the_same_for_ever") {
    // Checkpoints count in it.
    CHECK(all_of(10, 0) == std::vector<std::int64_t>{3, 0, 8, 2, 6, 5, 9, 7, 4, 1});
    const Permutation large(1'000'000'000, hash_of(7, 3));
    CHECK(large[0] == 675104394);
    CHECK(large[999'999'999] == 524251309);
    const Permutation largest(std::int64_t{1} << 62, 1);
    CHECK(largest[(std::int64_t{1} << 62) - 1] == 1435594399467576734);
}

TEST_CASE("Permutation.differs_between_seeds_and_epochs") {
    // Two random permutations of n elements agree in one place on average.
    std::int64_t agreeing = 0;
    std::int64_t pairs = 0;
    std::vector<std::vector<std::int64_t>> known;
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
        for (std::int64_t epoch = 0; epoch < 6; ++epoch) {
            auto elements = all_of(1000, hash_of(seed, epoch));
            for (const auto& other : known) {
                for (std::size_t i = 0; i < elements.size(); ++i) {
                    agreeing += elements[i] == other[i] ? 1 : 0;
                }
                ++pairs;
            }
            known.push_back(std::move(elements));
        }
    }
    CHECK(pairs == 630);
    CHECK(std::abs(agreeing - pairs) < 5 * std::sqrt(static_cast<double>(pairs)));
}

TEST_CASE("Permutation.of_few_elements_takes_every_form_equally_often") {
    double forms = 1;
    for (std::int64_t size = 2; size <= 6; ++size) {
        CAPTURE(size);
        forms *= static_cast<double>(size);
        const double each = 100;
        std::map<std::vector<std::int64_t>, double> seen;
        for (std::uint64_t key = 0; key < static_cast<std::uint64_t>(forms * each); ++key) {
            seen[all_of(size, key)] += 1;
        }
        REQUIRE(static_cast<double>(seen.size()) == forms);
        std::vector<double> counts;
        for (const auto& [form, count] : seen) {
            counts.push_back(count);
        }
        const std::vector<double> expected(counts.size(), each);
        CHECK(std::abs(deviation(counts, expected, forms - 1, forms - 1)) < 4);
    }
}

TEST_CASE("Permutation.spreads_places_evenly") {
    constexpr std::int64_t cells = 16;
    for (const std::int64_t size : {127, 128, 129, 1000, 1024, 4096, 10007, 100003}) {
        CAPTURE(size);
        const int keys = size < 5000 ? 200 : 10;
        const auto cell_of = [&](std::int64_t i) { return i * cells / size; };
        std::vector<double> of_cell(cells);
        for (std::int64_t i = 0; i < size; ++i) {
            of_cell[static_cast<std::size_t>(cell_of(i))] += 1;
        }
        std::vector<double> expected;
        for (const double from : of_cell) {
            for (const double to : of_cell) {
                expected.push_back(from * to / static_cast<double>(size));
            }
        }
        double sum = 0;
        std::vector<double> steps(32);
        for (int key = 0; key < keys; ++key) {
            const auto elements = all_of(size, hash_of(11, key));
            std::vector<double> counts(cells * cells);
            for (std::int64_t i = 0; i < size; ++i) {
                const std::int64_t element = elements[static_cast<std::size_t>(i)];
                counts[static_cast<std::size_t>(cell_of(i) * cells + cell_of(element))] += 1;
                if (i > 0) { // from one element to the next, around the end
                    const std::int64_t step =
                        (element - elements[static_cast<std::size_t>(i - 1)] + size) % size;
                    steps[static_cast<std::size_t>((step - 1) * 32 / (size - 1))] += 1;
                }
            }
            constexpr double freedom = (cells - 1.0) * (cells - 1);
            const auto n = static_cast<double>(size);
            sum += deviation(counts, expected, freedom, freedom * n / (n - 1));
        }
        // The mean of `keys` deviations has a standard deviation of 1 / sqrt(keys).
        CHECK(std::abs(sum / std::sqrt(keys)) < 4);

        std::vector<double> of_step(32);
        for (std::int64_t step = 1; step < size; ++step) {
            of_step[static_cast<std::size_t>((step - 1) * 32 / (size - 1))] += keys;
        }
        CHECK(std::abs(deviation(steps, of_step, 31, 31)) < 4);
    }
}
