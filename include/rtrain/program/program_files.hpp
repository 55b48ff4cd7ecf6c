// SPDX-License-Identifier: Apache-2.0
/// @file
/// The files that a program's run leaves in its directory.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/json.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/run/run_directory.hpp>

#include <exception>
#include <filesystem>

namespace rtrain::program {

/// Holds the lock of the run's directory.
class ProgramFiles {
public:
    /// Writes params.json and an empty result.json, and removes the error of an earlier run. `run`
    /// has a name. Throws StorageError [RT-S1], [RT-S7].
    ProgramFiles(const RunConfig& run, const Config& config)
        : directory_(detail::run_location(run, run.name), track::logs_of(run)) {
        directory_.take(detail::new_attempt());
        directory_.location().filesystem.remove(directory_.path_of(track::error_file));
        track::RunLog log(directory_.log_directory(), config);
        (void)log.open(nullptr, [](const Config&) {});
        directory_.publish_logs();
    }

    [[nodiscard]] const RunDirectory& directory() const noexcept { return directory_; }

    void write_error(const Failure& failure) const {
        try {
            directory_.write(track::error_file, json::serialize({{"code", failure.code.text()},
                                                                 {"message", failure.message}}));
        } catch (const std::exception& error) { // the storage itself may have failed
            console::warn("%s was not written: %s", track::error_file, error.what());
        }
    }

private:
    RunDirectory directory_;
};

} // namespace rtrain::program
