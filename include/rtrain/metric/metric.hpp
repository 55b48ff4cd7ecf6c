// SPDX-License-Identifier: Apache-2.0
/// @file
/// The base of all metrics. It keeps what was seen, merges, saves and loads it; a metric adds
/// update(), which sees rows, and compute(). Cost tier 0: std only; guide: docs/metrics.md
///
/// @code
/// class Median : public rtrain::metric::Metric {
/// public:
///     Median() : Metric("Median", {}) {}
///     void update(double value) { tally().samples.push_back(value); }
///     [[nodiscard]] rtrain::metric::Value compute() const override;
/// };
/// @endcode
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/metric/tally.hpp>
#include <rtrain/metric/value.hpp>

#include <string>

namespace at {
class Tensor;
} // namespace at

namespace rtrain {
class StateReader;
class StateWriter;
} // namespace rtrain

namespace rtrain::metric {

class Collection;

/// What all metrics have; see the file's comment for how they are used.
class Metric {
public:
    virtual ~Metric();

    /// Of all that was seen since the beginning, or reset().
    [[nodiscard]] virtual Value compute() const = 0;

    /// Adds what another metric has seen, as if this one had seen it next. Throws Error [RT-V44]
    /// unless it is the same metric with the same options.
    void merge(const Metric& next);
    /// Forgets all that was seen.
    void reset() { tally_.clear(); }

    /// For State::add(): what each rank has seen. Loaded on another number of ranks, what was seen
    /// is dealt out to the ranks that there are.
    void save(StateWriter& out) const;
    void load(const StateReader& in);

    /// What errors call it: its class, and its name in a collection if it is in one.
    [[nodiscard]] const std::string& label() const noexcept { return label_; }

protected:
    /// `kind`: the name of the class; `seen`: how many counts, sums and maxima it has.
    Metric(std::string kind, Tally seen);
    Metric(const Metric&) = default;
    Metric(Metric&&) = default;
    Metric& operator=(const Metric&) = default;
    Metric& operator=(Metric&&) = default;

    [[nodiscard]] Tally& tally() noexcept { return tally_; }
    [[nodiscard]] const Tally& tally() const noexcept { return tally_; }

    /// An error that names this metric.
    template <class... Parts>
    [[nodiscard]] Error wrong(const char* code, const Parts&... parts) const {
        return {code, rtrain::detail::concat(label_, ": ", parts...)};
    }

private:
    friend Collection;

    std::string kind_;
    std::string label_;
    Tally tally_;
};

/// A metric of predictions, beside what they should have been.
class Comparison : public Metric {
public:
    /// Tensors on any device; what is kept is kept in this process's memory. When it throws, it has
    /// seen nothing of them.
    virtual void update(const at::Tensor& predictions, const at::Tensor& targets) = 0;

protected:
    using Metric::Metric;
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/metric_definitions.hpp>
#endif
