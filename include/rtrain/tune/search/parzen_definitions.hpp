// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door parzen.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/tune/search/normal.hpp>
#include <rtrain/tune/search/parameters.hpp>
#include <rtrain/tune/search/parzen.hpp>

#include <algorithm>
#include <cmath>

namespace rtrain::tune::internal {

RTRAIN_DOOR Dimension dimension_of(const Domain& domain) {
    Dimension dimension;
    if (const auto* range = std::get_if<Range>(&domain)) {
        dimension.range = *range;
        if (!std::isfinite((range->high - range->low) + range->step)) {
            dimension.scale = 0.25;
        }
        dimension.low = range->low * dimension.scale - range->step * dimension.scale / 2;
        dimension.high = range->high * dimension.scale + range->step * dimension.scale / 2;
        if (range->logarithmic) {
            dimension.low = std::log(dimension.low / dimension.scale);
            dimension.high = std::log(dimension.high / dimension.scale);
        }
    } else if (!std::holds_alternative<Normal>(domain)) {
        dimension.options = *count_of(domain);
    }
    return dimension;
}

RTRAIN_DOOR ParzenEstimator::ParzenEstimator(std::span<const Dimension> dimensions,
                                             std::span<const Observations> observations,
                                             std::size_t count)
    : dimensions_(dimensions), count_(count + 1), volumes_(count_, 1.0) {
    constexpr std::size_t factors = 64; // each above 1e-3, so that their product is above 0
    weigh();
    kernels_.reserve(dimensions.size());
    for (std::size_t d = 0; d < dimensions.size(); ++d) {
        if (dimensions[d].options > 0) {
            add_choice(dimensions[d], observations[d]);
        } else {
            add_numbers(dimensions[d], observations[d]);
        }
        if (d % factors == factors - 1 || d + 1 == dimensions.size()) {
            for (std::size_t k = 0; k < count_; ++k) {
                log_base_[k] -= std::log(volumes_[k]);
                volumes_[k] = 1;
            }
        }
    }
    for (double& base : log_base_) {
        base -= log_ranges_;
    }
}

/// The newest 25 weigh 1, older ones less with age, the prior 1.
RTRAIN_DOOR void ParzenEstimator::weigh() {
    const std::size_t count = count_ - 1;
    constexpr std::size_t newest = 25;
    weights_.assign(count_, 1.0);
    if (count > newest) {
        const std::size_t ramp = count - newest;
        const double first = 1.0 / static_cast<double>(count);
        for (std::size_t k = 0; k + 1 < ramp; ++k) {
            weights_[k] =
                first + static_cast<double>(k) * ((1.0 - first) / static_cast<double>(ramp - 1));
        }
        weights_[ramp - 1] = ramp == 1 ? first : 1.0;
    }
    double sum = 0;
    for (const double weight : weights_) {
        sum += weight;
    }
    log_base_.resize(count_);
    for (std::size_t k = 0; k < count_; ++k) {
        weights_[k] /= sum;
        volumes_[k] = 1 / weights_[k];
    }
}

RTRAIN_DOOR void ParzenEstimator::add_choice(const Dimension& dimension,
                                             const Observations& observed) {
    Kernels kernels;
    const double shared = 1.0 / static_cast<double>(count_); // the prior's weight
    const double sum = 1 + static_cast<double>(dimension.options) * shared;
    kernels.log_same = std::log((1 + shared) / sum);
    kernels.log_other = std::log(shared / sum);
    kernels.option.reserve(observed.values.size());
    for (const double option : observed.values) {
        kernels.option.push_back(static_cast<std::uint32_t>(option));
    }
    kernels_.push_back(std::move(kernels));
}

RTRAIN_DOOR void ParzenEstimator::add_numbers(const Dimension& dimension,
                                              const Observations& observed) {
    const std::size_t count = count_ - 1;
    const double width = dimension.high - dimension.low;
    const double least = width / std::min(100.0, 1.0 + static_cast<double>(count_));
    Kernels kernels;
    kernels.mean = observed.values;
    kernels.mean.push_back(0.5 * (dimension.low + dimension.high));
    kernels.deviation.assign(count_, width);
    for (std::size_t i = 0; i < count; ++i) { // deviation: the distance to the farther neighbor
        const double mean = kernels.mean[observed.order[i]];
        const double below = i == 0 ? dimension.low : kernels.mean[observed.order[i - 1]];
        const double above = i + 1 == count ? dimension.high : kernels.mean[observed.order[i + 1]];
        double deviation = std::max(mean - below, above - mean);
        if (count >= 2 && i == 0) { // bounds count as neighbors only if no other exists
            deviation = above - mean;
        } else if (count >= 2 && i + 1 == count) {
            deviation = mean - below;
        }
        kernels.deviation[observed.order[i]] = std::clamp(deviation, least, width);
    }
    const bool discrete = dimension.discrete();
    kernels.scale.resize(count_);
    for (std::size_t k = 0; k < count_; ++k) {
        const double deviation = kernels.deviation[k];
        const double below = (kernels.mean[k] - dimension.low) / deviation;
        const double above = (dimension.high - kernels.mean[k]) / deviation;
        // Means are between the bounds. A bound more than 8.5 deviations away would cut off less
        // than 1e-17.
        double mass = 1;
        mass -= below < 8.5 ? normal_mass(-below) : 0;
        mass -= above < 8.5 ? normal_mass(-above) : 0;
        volumes_[k] *= discrete ? mass : mass * (deviation / width);
        kernels.scale[k] = 0.70710678118654752440 / deviation;
    }
    if (discrete) {
        find_shapes(kernels, observed.order);
    } else {
        log_ranges_ += std::log(width) + log_sqrt_2pi;
    }
    kernels_.push_back(std::move(kernels));
}

RTRAIN_DOOR void ParzenEstimator::find_shapes(Kernels& kernels,
                                              const std::vector<std::uint32_t>& order) const {
    kernels.shape.resize(count_);
    const auto prior = static_cast<std::uint32_t>(count_ - 1);
    kernels.of_shape.push_back(prior);
    kernels.shape[prior] = 0;
    std::size_t first = 1; // the first shape with this mean
    for (std::size_t i = 0; i < order.size(); ++i) {
        const std::uint32_t k = order[i];
        if (i == 0 || kernels.mean[k] != kernels.mean[order[i - 1]]) {
            first = kernels.of_shape.size();
        }
        std::size_t shape = first;
        while (shape < kernels.of_shape.size() &&
               kernels.deviation[kernels.of_shape[shape]] != kernels.deviation[k]) {
            ++shape;
        }
        if (shape == kernels.of_shape.size()) {
            kernels.of_shape.push_back(k);
        }
        kernels.shape[k] = static_cast<std::uint32_t>(shape);
    }
}

RTRAIN_DOOR std::vector<double> ParzenEstimator::sample(Random& random) const {
    std::size_t kernel = 0;
    for (double left = random.uniform() - weights_[0]; left >= 0 && kernel + 1 < count_;) {
        left -= weights_[++kernel];
    }
    std::vector<double> point;
    point.reserve(dimensions_.size());
    for (std::size_t d = 0; d < dimensions_.size(); ++d) {
        const Dimension& dimension = dimensions_[d];
        const Kernels& kernels = kernels_[d];
        if (dimension.options == 0) {
            point.push_back(sample_number(dimension, kernels, kernel, random));
            continue;
        }
        const bool prior = kernel + 1 == count_;
        const double any =
            static_cast<double>(dimension.options) *
            (prior ? 1.0 : std::exp(kernels.log_other)); // the rest is for the kernel's own option
        point.push_back(random.uniform() < any
                            ? static_cast<double>(random.below(dimension.options))
                            : static_cast<double>(kernels.option[kernel]));
    }
    return point;
}

RTRAIN_DOOR double ParzenEstimator::sample_number(const Dimension& dimension,
                                                  const Kernels& kernels, std::size_t kernel,
                                                  Random& random) const {
    const double mean = kernels.mean[kernel];
    const double deviation = kernels.deviation[kernel];
    const double below = normal_mass((dimension.low - mean) / deviation);
    const double above = normal_mass((mean - dimension.high) / deviation);
    const double mass = 1 - below - above;
    const double part = random.quantile();
    const double p = below + part * mass;
    const double z = p < 0.5 ? normal_quantile(p) : -normal_quantile(above + (1 - part) * mass);
    const double x = std::clamp(mean + z * deviation, dimension.low, dimension.high);
    if (!dimension.discrete()) {
        return x;
    }
    return nearest(dimension.range, dimension.outer(x));
}

RTRAIN_DOOR void ParzenEstimator::add_log_masses(const Dimension& dimension, const Kernels& kernels,
                                                 double x, std::span<double> sums) const {
    const double from = dimension.inner(x - dimension.range.step / 2);
    const double to = dimension.inner(x + dimension.range.step / 2);
    std::vector<double> masses;
    masses.reserve(kernels.of_shape.size());
    for (const std::uint32_t k : kernels.of_shape) {
        const double mean = kernels.mean[k];
        const double deviation = kernels.deviation[k];
        masses.push_back(log_normal_mass((from - mean) / deviation, (to - mean) / deviation));
    }
    for (std::size_t k = 0; k < count_; ++k) {
        sums[k] += masses[kernels.shape[k]];
    }
}

RTRAIN_DOOR void ParzenEstimator::add_log_options(const Dimension& dimension,
                                                  const Kernels& kernels, double x,
                                                  std::span<double> sums) const {
    const auto option = static_cast<std::uint32_t>(x);
    for (std::size_t k = 0; k + 1 < count_; ++k) {
        sums[k] += kernels.option[k] == option ? kernels.log_same : kernels.log_other;
    }
    sums[count_ - 1] -= std::log(static_cast<double>(dimension.options));
}

RTRAIN_DOOR std::vector<double>
ParzenEstimator::log_pdf(const std::vector<std::vector<double>>& points) const {
    std::vector<double> result;
    result.reserve(points.size());
    std::vector<double> sums(count_);
    for (const std::vector<double>& point : points) {
        sums = log_base_;
        for (std::size_t d = 0; d < dimensions_.size(); ++d) {
            const Kernels& kernels = kernels_[d];
            const double x = point[d];
            if (dimensions_[d].options > 0) {
                add_log_options(dimensions_[d], kernels, x, sums);
            } else if (dimensions_[d].discrete()) {
                add_log_masses(dimensions_[d], kernels, x, sums);
            } else {
                double* const sum = sums.data();
                const double* const mean = kernels.mean.data();
                const double* const scale = kernels.scale.data();
                for (std::size_t k = 0; k < count_; ++k) {
                    const double z = (x - mean[k]) * scale[k];
                    sum[k] -= z * z;
                }
            }
        }
        const double most = *std::max_element(sums.begin(), sums.end());
        double total = 0;
        for (const double sum : sums) {
            if (sum - most > -45) { // smaller terms do not change the total
                total += std::exp(sum - most);
            }
        }
        result.push_back(std::log(total) + most);
    }
    return result;
}

} // namespace rtrain::tune::internal
