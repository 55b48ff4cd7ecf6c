// SPDX-License-Identifier: Apache-2.0
/// @file
/// What prepared optimizers step: they wait for copies under way (process/late_copy.hpp), as
/// torch's own do not.
#pragma once

#include <rtrain/model/step_link.hpp>

#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rtrain::detail {

class SteppedParameters {
public:
    using Set = std::unordered_set<const void*>; ///< of TensorImpl

    /// Those that an optimizer has, for as long as it lives.
    static void add(const std::shared_ptr<StepLink>& optimizer, Set parameters) {
        const std::lock_guard lock(mutex());
        std::erase_if(all(), [](const Entry& entry) { return entry.first.expired(); });
        all().emplace_back(optimizer, std::move(parameters));
    }
    /// Those that some optimizer has now.
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
    using Entry = std::pair<std::weak_ptr<StepLink>, Set>;

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
