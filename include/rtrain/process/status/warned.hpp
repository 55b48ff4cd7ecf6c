// SPDX-License-Identifier: Apache-2.0
/// @file
/// Warned: what a fit() call has warned of, for warnings that appear once. Cost tier 0: std only.
#pragma once

#include <mutex>
#include <set>
#include <string>

namespace rtrain {

/// Thread-safe.
class Warned {
public:
    /// Returns false if `subject` was added before.
    [[nodiscard]] bool add(const std::string& subject) {
        const std::scoped_lock lock(mutex_);
        return subjects_.insert(subject).second;
    }
    void forget() {
        const std::scoped_lock lock(mutex_);
        subjects_.clear();
    }

private:
    std::mutex mutex_;
    std::set<std::string> subjects_;
};

} // namespace rtrain
