// SPDX-License-Identifier: Apache-2.0
/// @file
/// A table for tests of the C interfaces: numbers from a seed, some of them missing.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/gbdt/row_block.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace test {

template <class T>
struct Rows final : rtrain::gbdt::RowSource<T> {
    rtrain::gbdt::Features columns;
    std::vector<T> values;
    std::vector<double> labels;
    std::int64_t count;
    std::int64_t at = 0;
    std::int64_t fails_at = -1; ///< row at which reading throws
    int passes = 0;

    Rows(std::int64_t rows, int width, unsigned seed) : count(rows) {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        for (int i = 0; i < width; ++i) {
            columns.names.push_back("f" + std::to_string(i));
            columns.categorical.push_back(false);
        }
        for (std::int64_t row = 0; row < rows; ++row) {
            for (int i = 0; i < width; ++i) {
                values.push_back(static_cast<T>(normal(random)));
            }
            const T* const x = values.data() + row * width;
            labels.push_back(x[0] * x[1] + x[2] > 0 ? 1 : 0);
            if (row % 7 == 0) {
                values[static_cast<std::size_t>(row * width + 3)] =
                    std::numeric_limits<T>::quiet_NaN();
            }
        }
    }

    [[nodiscard]] const rtrain::gbdt::Features& features() const override { return columns; }
    [[nodiscard]] std::int64_t rows() override { return count; }
    void rewind() override {
        at = 0;
        ++passes;
    }
    [[nodiscard]] rtrain::gbdt::RowBlock<T> next() override {
        if (fails_at >= 0 && at >= fails_at) {
            throw rtrain::DataError("RT-D6", "as planned");
        }
        rtrain::gbdt::RowBlock<T> block{.rows = std::min<std::int64_t>(300, count - at)};
        block.values = values.data() + at * static_cast<std::int64_t>(columns.size());
        block.fields[0].data = labels.data() + at;
        at += block.rows;
        return block;
    }
};

} // namespace test
