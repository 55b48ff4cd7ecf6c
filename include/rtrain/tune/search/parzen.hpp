// SPDX-License-Identifier: Apache-2.0
/// @file
/// ParzenEstimator: Tpe's density of the values of some trials, one kernel per trial and a prior.
/// Like Optuna 5.0.0 (samplers/_tpe/parzen_estimator.py, probability_distributions.py) with magic
/// clip and prior weight 1: log_pdf() differs by less than 1e-9. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/tune/search/domain.hpp>
#include <rtrain/tune/search/random.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rtrain::tune::internal {

/// A parameter of an estimator.
struct Dimension {
    std::size_t options = 0; ///< for a choice; 0: a number
    Range range{};           ///< for a number
    double low = 0;          ///< for kernels: half a step below the range's, or its logarithm's
    double high = 1;
    double scale = 1; ///< for kernels: less than 1 where the range's width is not finite

    [[nodiscard]] bool discrete() const noexcept { return options == 0 && range.step != 0; }
    /// The kernels' representation of a value.
    [[nodiscard]] double inner(double value) const noexcept {
        return range.logarithmic ? std::log(value) : value * scale;
    }
    /// The inverse of inner().
    [[nodiscard]] double outer(double x) const noexcept {
        return range.logarithmic ? std::exp(x) : x / scale;
    }
};

/// A normal distribution is searched by its quantile, so that its prior is the distribution itself.
[[nodiscard]] Dimension dimension_of(const Domain& domain);

/// The data for the kernels of one dimension, in the order of trials.
struct Observations {
    std::vector<double> values; ///< the index for choices, the logarithm for logarithmic ranges
    std::vector<std::uint32_t> order; ///< for numbers: indices into `values`, smallest first
};

class ParzenEstimator {
public:
    /// `observations` has one entry per dimension, with all `count` trials. Both spans must live
    /// until the constructor returns, `dimensions` as long as the estimator.
    ParzenEstimator(std::span<const Dimension> dimensions,
                    std::span<const Observations> observations, std::size_t count);

    /// One point: numbers unchanged, except logarithms for continuous logarithmic ranges.
    [[nodiscard]] std::vector<double> sample(Random& random) const;

    /// The logarithms of the density at `points`, rows in the format of sample().
    [[nodiscard]] std::vector<double> log_pdf(const std::vector<std::vector<double>>& points) const;

private:
    /// Kernels with the same mean and deviation in a dimension share one shape.
    struct Kernels {
        std::vector<double> mean;
        std::vector<double> deviation;
        std::vector<double> scale;           ///< 1 / (deviation * sqrt(2))
        std::vector<std::uint32_t> shape;    ///< discrete: shape of each kernel
        std::vector<std::uint32_t> of_shape; ///< discrete: one kernel of each shape
        std::vector<std::uint32_t> option;   ///< for a choice
        double log_same = 0;                 ///< for a choice: the kernel's own option
        double log_other = 0;
    };

    void weigh();
    void add_choice(const Dimension& dimension, const Observations& observed);
    void add_numbers(const Dimension& dimension, const Observations& observed);
    void find_shapes(Kernels& kernels, const std::vector<std::uint32_t>& order) const;
    [[nodiscard]] double sample_number(const Dimension& dimension, const Kernels& kernels,
                                       std::size_t kernel, Random& random) const;
    void add_log_masses(const Dimension& dimension, const Kernels& kernels, double x,
                        std::span<double> sums) const;
    void add_log_options(const Dimension& dimension, const Kernels& kernels, double x,
                         std::span<double> sums) const;

    std::span<const Dimension> dimensions_;
    std::size_t count_;            ///< number of kernels; the prior's is the last
    std::vector<double> weights_;  ///< sum to 1
    std::vector<double> log_base_; ///< per kernel: weight divided by its integral
    std::vector<double> volumes_;  ///< factors of that, before their logarithm is taken
    double log_ranges_ = 0;
    std::vector<Kernels> kernels_;
};

} // namespace rtrain::tune::internal

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/search/parzen_definitions.hpp>
#endif
