// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collection: metrics by name, which ranks reduce together and a report records.
///
/// @code
/// rtrain::metric::Accuracy accuracy({.num_classes = 10});
/// rtrain::metric::Mean loss;
/// auto metrics = rtrain::metric::Collection{}.add("accuracy", accuracy).add("loss", loss);
/// worker.report({}, metrics, state); // accuracy and loss of all ranks' rows since the last report
/// @endcode
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/metric/metric.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace boost::json {
class object;
} // namespace boost::json

namespace rtrain {
class HookRanks;
} // namespace rtrain

namespace rtrain::metric {

/// Named references to metrics. They are not copied: they must live as long as the collection.
class Collection {
public:
    /// Names: each once, not empty; "val/loss" is one, too. Throws Error [RT-V46].
    Collection& add(const std::string& name, Metric& metric) &;
    Collection&& add(const std::string& name, Metric& metric) && {
        return std::move(add(name, metric));
    }

    /// Of each metric that compares predictions with targets: update().
    void update(const at::Tensor& predictions, const at::Tensor& targets);
    /// Forgets what was seen, in each metric.
    void reset();

    /// What this process's metrics say, by name: numbers, or arrays of them.
    [[nodiscard]] boost::json::object compute() const;

    /// What the metrics of all ranks together say, merged in the order of ranks; then they are
    /// reset. The same bits on all ranks. *Collective*: one all-gather for all metrics, and a
    /// second one when some rank keeps samples (Auroc and AveragePrecision without thresholds),
    /// because ranks learn in the first how many there are. Throws Error [RT-V46] when ranks'
    /// collections differ, and what compute() of a metric throws, on all ranks.
    [[nodiscard]] boost::json::object reduce(HookRanks& ranks);

    /// For State::add().
    void save(StateWriter& out) const;
    void load(const StateReader& in);

private:
    struct Entry {
        std::string name;
        Metric* metric = nullptr;
        Comparison* comparison = nullptr; ///< the same, if it is one
    };

    void merge_ranks(HookRanks& ranks);

    std::vector<Entry> entries_;
    std::uint32_t checksum_ = 0; ///< of what the metrics are
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/collection_definitions.hpp>
#endif
