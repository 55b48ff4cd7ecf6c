// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace test {

/// Removes a run's directory in one instant: the thread of progress.csv may write there meanwhile.
inline void remove_at_once(const std::filesystem::path& run) {
    const std::filesystem::path away = run.string() + "-away";
    std::filesystem::rename(run, away);
    std::filesystem::remove_all(away);
}

} // namespace test
