// SPDX-License-Identifier: Apache-2.0
/// @file
/// The normal distribution: its quantiles, and the logarithm of its mass between two points, equal
/// to Optuna 5.0.0's (samplers/_tpe/_truncnorm.py) to about 1e-12. Cost tier 0: std only.
#pragma once

#include <cmath>

namespace rtrain::tune::internal {

inline constexpr double log_sqrt_2pi = 0.91893853320467274178;

namespace wichura {

/// Numerators and denominators of AS 241, highest power first.
inline constexpr double center_over[] = {2.5090809287301226727e+3, 3.3430575583588128105e+4,
                                         6.7265770927008700853e+4, 4.5921953931549871457e+4,
                                         1.3731693765509461125e+4, 1.9715909503065514427e+3,
                                         1.3314166789178437745e+2, 3.3871328727963666080e+0};
inline constexpr double center_under[] = {5.2264952788528545610e+3, 2.8729085735721942674e+4,
                                          3.9307895800092710610e+4, 2.1213794301586595867e+4,
                                          5.3941960214247511077e+3, 6.8718700749205790830e+2,
                                          4.2313330701600911252e+1, 1.0};
inline constexpr double near_over[] = {7.74545014278341407640e-4, 2.27238449892691845833e-2,
                                       2.41780725177450611770e-1, 1.27045825245236838258e+0,
                                       3.64784832476320460504e+0, 5.76949722146069140550e+0,
                                       4.63033784615654529590e+0, 1.42343711074968357734e+0};
inline constexpr double near_under[] = {1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                        1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                        6.89767334985100004550e-1, 1.67638483018380384940e+0,
                                        2.05319162663775882187e+0, 1.0};
inline constexpr double far_over[] = {2.01033439929228813265e-7, 2.71155556874348757815e-5,
                                      1.24266094738807843860e-3, 2.65321895265761230930e-2,
                                      2.96560571828504891230e-1, 1.78482653991729133580e+0,
                                      5.46378491116411436990e+0, 6.65790464350110377720e+0};
inline constexpr double far_under[] = {2.04426310338993978564e-15, 1.42151175831644588870e-7,
                                       1.84631831751005468180e-5,  7.86869131145613259100e-4,
                                       1.48753612908506148525e-2,  1.36929880922735805310e-1,
                                       5.99832206555887937690e-1,  1.0};

[[nodiscard]] inline double ratio(const double (&over)[8], const double (&under)[8],
                                  double x) noexcept {
    double numerator = over[0];
    double denominator = under[0];
    for (int i = 1; i < 8; ++i) {
        numerator = numerator * x + over[i];
        denominator = denominator * x + under[i];
    }
    return numerator / denominator;
}

} // namespace wichura

/// The x below which the standard normal distribution has the mass `p`; 0 < p < 1. Algorithm AS 241
/// of Wichura (1988), to about 1e-16 of x.
[[nodiscard]] inline double normal_quantile(double p) noexcept {
    const double q = p - 0.5;
    if (std::abs(q) <= 0.425) {
        return q * wichura::ratio(wichura::center_over, wichura::center_under, 0.180625 - q * q);
    }
    const double tail = std::sqrt(-std::log(q < 0 ? p : 1 - p));
    const double x = tail <= 5 ? wichura::ratio(wichura::near_over, wichura::near_under, tail - 1.6)
                               : wichura::ratio(wichura::far_over, wichura::far_under, tail - 5);
    return q < 0 ? -x : x;
}

/// The mass of the standard normal distribution below `x`.
[[nodiscard]] inline double normal_mass(double x) noexcept {
    return 0.5 * std::erfc(-x * 0.70710678118654752440);
}

/// The logarithm of that mass; far below, where the mass would be 0, from the asymptotic series.
[[nodiscard]] inline double log_normal_mass(double x) noexcept {
    if (x > 6) {
        return -normal_mass(-x);
    }
    if (x > -20) {
        return std::log(normal_mass(x));
    }
    const double begin = -0.5 * x * x - std::log(-x) - log_sqrt_2pi;
    const double square = 1 / (x * x);
    double sum = 1;
    double term = 1;
    for (int i = 1; i < 50; ++i) {
        term *= -square * (2 * i - 1);
        if (sum + term == sum) {
            break;
        }
        sum += term;
    }
    return begin + std::log(sum);
}

/// The logarithm of the mass between `a` and `b`; `a` < `b`.
[[nodiscard]] inline double log_normal_mass(double a, double b) noexcept {
    if (a > 0) { // mirror the right tail to the left one, where no digits are lost
        const double mirrored = -a;
        a = -b;
        b = mirrored;
    }
    if (b <= 0) {
        const double upper = log_normal_mass(b);
        return upper + std::log1p(-std::exp(log_normal_mass(a) - upper));
    }
    return std::log1p(-normal_mass(a) - normal_mass(-b));
}

} // namespace rtrain::tune::internal
