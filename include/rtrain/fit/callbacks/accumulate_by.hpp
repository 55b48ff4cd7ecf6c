// SPDX-License-Identifier: Apache-2.0
/// @file
/// AccumulateBy: FitOptions::accumulate, by epoch.
#pragma once

#include <initializer_list>
#include <iterator>
#include <map>
#include <utility>

namespace rtrain {

/// A callback of Fit that changes the number of batches in a step during training, as Lightning's
/// GradientAccumulationScheduler does.
///
/// @code
/// rtrain::Fit<Classifier, rtrain::AccumulateBy> fit{{.max_epochs = 10}, {{0, 1}, {5, 4}}};
/// @endcode
class AccumulateBy {
public:
    /// Pairs of an epoch and the number of batches from then on; 1 before the first.
    AccumulateBy(std::initializer_list<std::pair<const int, int>> from) : from_(from) {}

    /// Returns the number of batches in a step of an epoch.
    [[nodiscard]] int accumulate(int epoch) const {
        const auto next = from_.upper_bound(epoch);
        return next == from_.begin() ? 1 : std::prev(next)->second;
    }

private:
    std::map<int, int> from_;
};

} // namespace rtrain
