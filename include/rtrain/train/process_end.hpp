// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a process ends whose run cannot begin, has failed or is preempted.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/launch/fit_outcome.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/process/preemption/preemption_signals.hpp>
#include <rtrain/run/run_directory.hpp>
#include <rtrain/storage/file/lock.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>

namespace rtrain::detail {

/// Rejects a second driver of the same run before it launches ranks. Waits for the ranks of a
/// driver that was just killed to end.
inline void require_free(launch::FitCall call, const RunConfig& run) {
    constexpr std::chrono::milliseconds patience{400};
    const storage::Location root = storage_root(run);
    if (!root.filesystem.is_local()) {
        return;
    }
    try {
        storage::DirectoryLock::require_free(std::filesystem::path(root.path) / run.name, patience);
    } catch (const StorageError& error) {
        call.session.record(call.number, launch::FitOutcome::of(error));
        throw;
    }
}

/// Exits; running the same command resumes the run.
[[noreturn]] inline void exit_preempted() {
    launch::PreemptionSignals::ignore();
    std::exit(preempted_exit_code);
}

/// Ends this process, which has no driver, instead of throwing from fit().
[[noreturn]] inline void end_process(launch::FitCall call, bool leads, const Error& error) {
    if (!error.is(PreemptionError::own_code)) {
        call.session.record(call.number, launch::FitOutcome::of(error));
        console::error("%s", error.what());
        std::exit(EXIT_FAILURE);
    }
    if (leads) {
        console::say("%s", error.message().c_str());
    }
    exit_preempted();
}

} // namespace rtrain::detail
