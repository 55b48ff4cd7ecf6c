// SPDX-License-Identifier: Apache-2.0
/// @file
/// Value of a metric: a number, or an array of them. Cost tier 0: std only.
#pragma once

#include <rtrain/base/error.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace rtrain::metric {

/// @code
/// const double value = accuracy.compute();
/// const std::vector<double> of_classes = precision.compute().numbers(); // Average::none
/// @endcode
class Value {
public:
    Value(double number) : numbers_{number} {} // NOLINT(google-explicit-constructor)
    /// In row-major order.
    Value(std::vector<double> numbers, std::vector<std::int64_t> shape)
        : numbers_(std::move(numbers)), shape_(std::move(shape)) {}
    /// Integers, reported without a decimal point.
    Value(const std::vector<std::int64_t>& counts, std::vector<std::int64_t> shape)
        : numbers_(counts.begin(), counts.end()), shape_(std::move(shape)), is_whole_(true) {}

    /// Throws Error [RT-V45] unless it is one number.
    operator double() const { // NOLINT(google-explicit-constructor)
        if (!shape_.empty()) {
            throw Error("RT-V45", detail::concat("a metric's value was read as one number, but it "
                                                 "has ",
                                                 numbers_.size(), "; read numbers()"));
        }
        return numbers_.front();
    }
    /// All elements, in row-major order.
    [[nodiscard]] const std::vector<double>& numbers() const noexcept { return numbers_; }
    /// Empty for a single number.
    [[nodiscard]] const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
    /// True for counts.
    [[nodiscard]] bool is_whole() const noexcept { return is_whole_; }

private:
    std::vector<double> numbers_;
    std::vector<std::int64_t> shape_;
    bool is_whole_ = false;
};

} // namespace rtrain::metric
