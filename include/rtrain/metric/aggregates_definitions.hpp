// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door aggregates.hpp.
#pragma once

#include <rtrain/metric/aggregates.hpp>
#include <rtrain/metric/numbers.hpp>

#include <ATen/ExpandUtils.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

namespace rtrain::metric {

RTRAIN_DOOR Aggregate::Aggregate(std::string kind, Tally seen, const AggregateOptions& options)
    : Metric(std::move(kind), std::move(seen)), options_(options) {}

RTRAIN_DOOR bool Aggregate::takes(double value) const {
    if (!std::isnan(value) || options_.nan == Nan::keep) {
        return true;
    }
    if (options_.nan == Nan::error) {
        throw wrong("RT-V42", "a value is NaN, and the option nan is Nan::error");
    }
    return false;
}

RTRAIN_DOOR Mean::Mean(const AggregateOptions& options)
    : Aggregate("Mean", {.sums = {0, 0}}, options) {}

RTRAIN_DOOR void Mean::update(double value, double weight) {
    if (takes(value) && takes(weight)) {
        tally().sums[0] += value * weight;
        tally().sums[1] += weight;
    }
}

RTRAIN_DOOR void Mean::update(const at::Tensor& values, double weight) {
    const Numbers numbers(values);
    for (const double value : numbers.all()) {
        update(value, weight);
    }
}

RTRAIN_DOOR void Mean::update(const at::Tensor& values, const at::Tensor& weights) {
    if (!at::is_expandable_to(weights.sizes(), values.sizes())) {
        throw wrong("RT-V40", "weights have shape ", weights.sizes(), ", values ", values.sizes(),
                    "; expected weights that broadcast to the values");
    }
    const Numbers numbers(values);
    const Numbers weights_of(weights.expand(values.sizes()));
    for (std::size_t i = 0; i < numbers.all().size(); ++i) {
        update(numbers.all()[i], weights_of.all()[i]);
    }
}

RTRAIN_DOOR Value Mean::compute() const {
    return tally().sums[0] / tally().sums[1];
}

RTRAIN_DOOR Sum::Sum(const AggregateOptions& options) : Aggregate("Sum", {.sums = {0}}, options) {}

RTRAIN_DOOR void Sum::update(double value) {
    if (takes(value)) {
        tally().sums[0] += value;
    }
}

RTRAIN_DOOR void Sum::update(const at::Tensor& values) {
    const Numbers numbers(values);
    for (const double value : numbers.all()) {
        update(value);
    }
}

RTRAIN_DOOR Value Sum::compute() const {
    return tally().sums[0];
}

RTRAIN_DOOR Min::Min(const AggregateOptions& options)
    : Aggregate("Min", {.maxima = {0}}, options) {}

RTRAIN_DOOR void Min::update(double value) {
    if (takes(value)) {
        tally().see_maximum(0, -value);
    }
}

RTRAIN_DOOR void Min::update(const at::Tensor& values) {
    const Numbers numbers(values);
    for (const double value : numbers.all()) {
        update(value);
    }
}

RTRAIN_DOOR Value Min::compute() const {
    return -tally().maxima[0];
}

RTRAIN_DOOR Max::Max(const AggregateOptions& options)
    : Aggregate("Max", {.maxima = {0}}, options) {}

RTRAIN_DOOR void Max::update(double value) {
    if (takes(value)) {
        tally().see_maximum(0, value);
    }
}

RTRAIN_DOOR void Max::update(const at::Tensor& values) {
    const Numbers numbers(values);
    for (const double value : numbers.all()) {
        update(value);
    }
}

RTRAIN_DOOR Value Max::compute() const {
    return tally().maxima[0];
}

} // namespace rtrain::metric
