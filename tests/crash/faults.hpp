// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls that fail: the n-th of those that this process makes on files under one directory.
#pragma once

#include <filesystem>
#include <string>

namespace crash {

struct Fault {
    long call = 0;           ///< the first call that fails, counted from 0
    int error = 0;           ///< errno; 0: a write, or a read, of half of the bytes
    bool persistent = false; ///< all calls after it fail, too; with EINTR, some
};

struct FaultReport {
    long calls = 0; ///< made while failing was on
    bool happened = false;
    char at[200] = {};           ///< the first call that failed
    char before[200] = {};       ///< its thread's last call before that changed or synced something
    char sync_retried[200] = {}; ///< a file whose fsync was called again after it had failed
};

void start_failing(const std::filesystem::path& directory, const Fault& fault);
[[nodiscard]] FaultReport stop_failing();

} // namespace crash
