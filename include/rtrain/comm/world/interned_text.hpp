// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text that any thread may read at any time, such as RankStatus::waiting_in: it is never freed.
#pragma once

#include <cstddef>
#include <mutex>
#include <set>
#include <string>

namespace rtrain::comm {

/// Returns the same pointer for equal texts; null if there are too many.
[[nodiscard]] inline const char* intern(const std::string& text) {
    constexpr std::size_t limit = 10000;
    static std::mutex mutex;
    static auto* const texts = new std::set<std::string>();
    const std::lock_guard lock(mutex);
    if (texts->size() >= limit && !texts->contains(text)) {
        return nullptr;
    }
    return texts->insert(text).first->c_str();
}

} // namespace rtrain::comm
