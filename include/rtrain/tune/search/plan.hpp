// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plan: shared by our searchers: the flattened space, the number of samples, the points to start
/// with, and the random numbers. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/tune/base/goal.hpp>
#include <rtrain/tune/search/parameters.hpp>
#include <rtrain/tune/search/random.hpp>
#include <rtrain/tune/search/space.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::tune::internal {

class Plan {
public:
    Plan() = default;
    /// Throws ConfigError: RT-U8 for a number of samples that is neither -1 nor above 0, RT-U10 for
    /// points that are not in the space.
    Plan(const Space& space, std::int64_t num_samples, const std::vector<Config>& points,
         std::uint64_t seed);

    /// Throws ConfigError: RT-U6 for a grid, RT-U7 without a metric.
    void check_learns(const std::string& searcher, const Goal& goal) const;

    [[nodiscard]] const Parameters& parameters() const noexcept { return parameters_; }
    [[nodiscard]] Random& random() noexcept { return random_; }

    /// True if all samples have begun. Points count among them, even if there are more.
    [[nodiscard]] bool exhausted() const noexcept;
    /// Begins a sample and returns the values of its point, if it has one.
    [[nodiscard]] std::optional<std::vector<double>> next();
    /// Draws the missing values.
    void complete(std::vector<double>& values);

    [[nodiscard]] boost::json::object save() const;
    /// Throws ConfigError (RT-U14) for the state of a search in another space.
    void load(const boost::json::object& state);

private:
    Parameters parameters_;
    std::vector<std::vector<double>> points_;
    std::int64_t samples_ = 0;
    std::int64_t begun_ = 0;
    Random random_;
};

/// Calls `read` and throws RT-U14 if it fails.
template <class F>
void read_state(F read) {
    try {
        read();
    } catch (const ConfigError&) {
        throw;
    } catch (const std::exception& error) {
        throw ConfigError(
            "RT-U14", std::string("a searcher cannot load this state (") + error.what() +
                          "); use the result of save() of the same searcher with the same space");
    }
}

} // namespace rtrain::tune::internal

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/search/plan_definitions.hpp>
#endif
