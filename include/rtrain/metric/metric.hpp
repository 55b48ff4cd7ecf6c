// SPDX-License-Identifier: Apache-2.0
/// @file
/// Base class of all metrics. It accumulates, merges, saves and loads the state; a metric adds
/// update() and compute(). Cost tier 0: std only; guide: docs/metrics.md
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

/// Base class of all metrics; the file comment shows how to derive from it.
class Metric {
public:
    virtual ~Metric();

    /// Value over all updates since construction or reset().
    [[nodiscard]] virtual Value compute() const = 0;

    /// Adds the state of another metric, as if this one had seen its rows next. Throws Error
    /// [RT-V44] unless it is the same metric with the same options.
    void merge(const Metric& next);
    /// Clears the state.
    void reset() { tally_.clear(); }

    /// For State::add(): saves the state of each rank. If loaded on a different number of ranks, it
    /// is distributed over them.
    void save(StateWriter& out) const;
    void load(const StateReader& in);

    /// Name in errors: the class, and its name in a collection, if any.
    [[nodiscard]] const std::string& label() const noexcept { return label_; }

protected:
    /// `kind`: class name; `seen`: an empty tally with the numbers of counts, sums and maxima set.
    Metric(std::string kind, Tally seen);
    Metric(const Metric&) = default;
    Metric(Metric&&) = default;
    Metric& operator=(const Metric&) = default;
    Metric& operator=(Metric&&) = default;

    [[nodiscard]] Tally& tally() noexcept { return tally_; }
    [[nodiscard]] const Tally& tally() const noexcept { return tally_; }

    /// Creates an error that names this metric.
    template <class... Parts>
    [[nodiscard]] Error wrong(Error::Code code, const Parts&... parts) const {
        return {code, rtrain::detail::concat(label_, ": ", parts...)};
    }

private:
    friend Collection;

    std::string kind_;
    std::string label_;
    Tally tally_;
};

/// A metric that compares predictions with targets.
class Comparison : public Metric {
public:
    /// Takes tensors on any device; state is kept in host memory. If it throws, the state is
    /// unchanged.
    virtual void update(const at::Tensor& predictions, const at::Tensor& targets) = 0;

protected:
    using Metric::Metric;
};

} // namespace rtrain::metric

#ifndef RTRAIN_COMPILED
#include <rtrain/metric/metric_definitions.hpp>
#endif
