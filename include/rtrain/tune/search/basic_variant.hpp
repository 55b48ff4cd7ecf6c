// SPDX-License-Identifier: Apache-2.0
/// @file
/// BasicVariant: random search and grids. Guide: docs/tune.md. Cost tier 1: Boost.JSON.
#pragma once

#include <rtrain/tune/search/plan.hpp>
#include <rtrain/tune/search/searcher.hpp>

#include <boost/json/object.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::tune {

/// Options of BasicVariant.
struct BasicVariantOptions {
    /// Configurations to start with. Missing values are drawn, missing grids are enumerated. They
    /// count among the samples; if there are more of them than samples, all are created.
    std::vector<Config> points_to_evaluate{};
    std::uint64_t seed = 0; ///< for random draws
};

/// Each sample is drawn at random, once for each point of the product of all grids; the first grid
/// in the space changes fastest. Scores are ignored.
class BasicVariant {
public:
    explicit BasicVariant(BasicVariantOptions options = {}) : options_(std::move(options)) {}

    /// Throws ConfigError: RT-U6 for a grid within a choice, RT-U9 for grids of more than a million
    /// points, RT-U8, RT-U10.
    void begin(const Space& space, const Goal& goal, std::int64_t num_samples);
    [[nodiscard]] Suggestion ask(const std::string& trial);
    void tell(const std::string& /*trial*/, std::optional<double> /*score*/, TrialEnd /*end*/) {}
    [[nodiscard]] boost::json::object save() const;
    void load(const boost::json::object& state);

private:
    BasicVariantOptions options_;
    internal::Plan plan_;
    std::vector<std::size_t> grids_;     ///< indices of parameters
    std::vector<double> sample_;         ///< values given by its point; empty: next sample
    std::vector<std::uint32_t> turning_; ///< the grids that the sample enumerates
    std::uint64_t turn_ = 0;
};
static_assert(Searcher<BasicVariant>);

} // namespace rtrain::tune

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/search/basic_variant_definitions.hpp>
#endif
