// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plan: what our searchers have in common: the space laid out flat, how many samples are to be
/// drawn, points to begin with, and the random numbers. Cost tier 1: Boost.JSON.
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
    /// points that the space does not have.
    Plan(const Space& space, std::int64_t num_samples, const std::vector<Config>& points,
         std::uint64_t seed);

    /// Throws ConfigError: RT-U6 where there is a grid, RT-U7 where no metric is given.
    void check_learns(const std::string& searcher, const Goal& goal) const;

    [[nodiscard]] const Parameters& parameters() const noexcept { return parameters_; }
    [[nodiscard]] Random& random() noexcept { return random_; }

    /// Whether all samples have been begun. Points count among them; all are drawn.
    [[nodiscard]] bool exhausted() const noexcept;
    /// Begins a sample: what its point says, where there is one for it.
    [[nodiscard]] std::optional<std::vector<double>> next();
    /// Draws what `values` lack.
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

/// Calls `read` and throws RT-U14 where it finds that `state` is none of this searcher's.
template <class F>
void read_state(F read) {
    try {
        read();
    } catch (const ConfigError&) {
        throw;
    } catch (const std::exception& error) {
        throw ConfigError("RT-U14", std::string("a searcher cannot load this state (") +
                                        error.what() +
                                        "); expected what save() of the same "
                                        "searcher gave, with the same space");
    }
}

} // namespace rtrain::tune::internal

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/search/plan_definitions.hpp>
#endif
