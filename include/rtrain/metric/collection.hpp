// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collection: named metrics that ranks reduce together and a report records.
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

/// Named references to metrics, which must outlive the collection.
class Collection {
public:
    Collection() = default;
    Collection(const Collection&) = default;
    Collection(Collection&&) noexcept = default;
    Collection& operator=(const Collection&) = default;
    Collection& operator=(Collection&&) noexcept = default;
    virtual ~Collection() = default;

    /// Names are unique and not empty; they may contain slashes, as in "val/loss". Throws Error
    /// [RT-V46].
    Collection& add(const std::string& name, Metric& metric) &;
    Collection&& add(const std::string& name, Metric& metric) && {
        return std::move(add(name, metric));
    }

    /// Calls update() of each metric that compares predictions with targets.
    void update(const at::Tensor& predictions, const at::Tensor& targets);
    /// Resets each metric.
    void reset();

    /// Values of this process's metrics, by name: numbers, or arrays of them.
    [[nodiscard]] boost::json::object compute() const;

    /// Values over all ranks, merged in rank order and bit-identical on all ranks; then resets the
    /// metrics. *Collective*: one all-gather for all metrics. A second one if a rank keeps samples
    /// (Auroc and AveragePrecision without thresholds), because the first exchanges their number.
    /// Throws Error [RT-V46] if collections of ranks differ, and errors of a metric's compute(), on
    /// all ranks.
    [[nodiscard]] boost::json::object reduce(HookRanks& ranks);

    /// For State::add().
    void save(StateWriter& out) const;
    void load(const StateReader& in);

protected:
    [[nodiscard]] static Tally& tally_of(Metric& metric) noexcept { return metric.tally_; }
    /// Forgets the metrics.
    void clear();

private:
    /// Called before ranks are merged. *Collective.*
    virtual void align(HookRanks& /*ranks*/) {}

    struct Entry {
        std::string name;
        Metric* metric = nullptr;
        Comparison* comparison = nullptr; ///< the same metric if it is a Comparison, else null
    };

    void merge_ranks(HookRanks& ranks);

    std::vector<Entry> entries_;
    std::uint32_t checksum_ = 0; ///< of names and kinds of the metrics
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/collection_definitions.hpp>
#endif
