// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parameters that prepared optimizers step: these wait for copies in flight
/// (process/late_copy.hpp), and torch's own do not.
#pragma once

#include <rtrain/model/parameters/backward_step_hook.hpp>

#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rtrain::detail {

class OptimizerParameterRegistry {
public:
    using Set = std::unordered_set<const void*>; ///< of TensorImpl

    /// Registers the parameters of an optimizer, for as long as it lives.
    static void add(const std::shared_ptr<BackwardStepHook>& optimizer, Set parameters) {
        const std::lock_guard lock(mutex());
        std::erase_if(all(), [](const Entry& entry) { return entry.first.expired(); });
        all().emplace_back(optimizer, std::move(parameters));
    }
    /// The parameters of all living optimizers.
    [[nodiscard]] static Set now() {
        const std::lock_guard lock(mutex());
        Set together;
        for (const auto& [optimizer, parameters] : all()) {
            if (!optimizer.expired()) {
                together.insert(parameters.begin(), parameters.end());
            }
        }
        return together;
    }

private:
    using Entry = std::pair<std::weak_ptr<BackwardStepHook>, Set>;

    [[nodiscard]] static std::mutex& mutex() {
        static std::mutex mutex;
        return mutex;
    }
    [[nodiscard]] static std::vector<Entry>& all() {
        static std::vector<Entry> entries;
        return entries;
    }
};

} // namespace rtrain::detail
