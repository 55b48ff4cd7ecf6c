// SPDX-License-Identifier: Apache-2.0
// Prints the rows of data::Permuted, for the comparison with Python's. Each line of the standard
// input has rows, batch size, ranks, seed, epoch, rows already taken, drop_last and each_once. The
// answer has the batches of each rank: numbers with spaces, batches with commas, ranks with
// semicolons.
#include <rtrain/data/order/permutation.hpp>
#include <rtrain/data/order/steps.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

namespace {

using rtrain::data::Permutation;
using rtrain::data::Steps;

void print_batches(const Steps& steps, const Permutation& permutation, std::int64_t taken,
                   std::int64_t rank) {
    while (const std::int64_t step = steps.step_at(taken)) {
        const auto part = steps.micro_batch(taken, rank);
        std::vector<std::int64_t> rows(static_cast<std::size_t>(part.end - part.begin));
        permutation.fill(part.begin, rows);
        for (const std::int64_t row : rows) {
            std::cout << row << ' ';
        }
        std::cout << ',';
        taken += step;
    }
}

} // namespace

int main() {
    Steps steps;
    std::uint64_t seed = 0;
    std::int64_t epoch = 0;
    std::int64_t taken = 0;
    while (std::cin >> steps.rows >> steps.size >> steps.micro_batches >> seed >> epoch >> taken >>
           steps.drop_last >> steps.each_once) {
        const Permutation permutation(steps.rows, rtrain::data::hash_of(seed, epoch));
        for (std::int64_t rank = 0; rank < steps.micro_batches; ++rank) {
            print_batches(steps, permutation, taken, rank);
            std::cout << ';';
        }
        std::cout << '\n';
    }
    return 0;
}
