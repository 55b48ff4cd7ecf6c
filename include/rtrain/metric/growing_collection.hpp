// SPDX-License-Identifier: Apache-2.0
/// @file
/// GrowingCollection: numbers by name, whose names need not be known in advance, nor be the same on
/// all ranks. Cost tier 0: std only; guide: docs/metrics.md
///
/// @code
/// rtrain::metric::GrowingCollection metrics;
/// metrics.update("loss", loss, rows);
/// if (batch_has_boxes) { // on this rank
///     metrics.update("boxes", boxes, 1, rtrain::metric::Reduction::sum);
/// }
/// worker.report({}, metrics, state);
/// @endcode
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/aggregates.hpp>
#include <rtrain/metric/collection.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace rtrain::metric {

/// Combines the values of a name, over updates and over ranks.
enum class Reduction : unsigned char {
    mean, ///< weighted
    sum,  ///< of all values
    min,  ///< the smallest
    max   ///< the largest
};

/// A collection of Mean, Sum, Min and Max that adds names when they are first used. A name that
/// only some ranks use counts as one without values on the others: reduce() compares checksums of
/// the names in one small exchange, and exchanges the names only if they differ.
class GrowingCollection final : public Collection {
public:
    /// Adds a value. `weight` is for means, for example the rows of the batch. Throws Error
    /// [RT-V46] if the name is empty or has a different reduction.
    void update(std::string_view name, double value, double weight = 1,
                Reduction reduction = Reduction::mean);

    /// For State::add(): saves the names and values of each rank. On a different number of ranks,
    /// they are distributed over them.
    void save(StateWriter& out) const;
    void load(const StateReader& in);

private:
    struct Member {
        Reduction reduction;
        std::unique_ptr<Metric> metric;
    };

    [[nodiscard]] Member& member(std::string_view name, Reduction reduction);
    void align(HookRanks& ranks) override;

    std::map<std::string, Member, std::less<>> members_;
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/growing_collection_definitions.hpp>
#endif
