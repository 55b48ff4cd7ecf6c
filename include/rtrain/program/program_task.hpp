// SPDX-License-Identifier: Apache-2.0
/// @file
/// ProgramTask: a program as a Task of a Supervisor: what its ranks get at each start, and how they
/// ended.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/launch/supervise/program.hpp>
#include <rtrain/program/held_ports.hpp>
#include <rtrain/program/process/preload_server.hpp>
#include <rtrain/program/process/run_lease.hpp>
#include <rtrain/program/program_options.hpp>
#include <rtrain/program/rank_parent.hpp>
#include <rtrain/program/report/rank_calls.hpp>
#include <rtrain/program/report/run_book.hpp>
#include <rtrain/storage/file/process_directory.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rtrain::program {

class ProgramTask {
public:
    /// `options`, whose run has a name, and its `book` outlive it. `preload`: shared with other
    /// runs; null: its own.
    ProgramTask(const ProgramOptions& options, RunBook& book,
                std::shared_ptr<PreloadService> preload);

    /// The task; this object outlives it.
    [[nodiscard]] launch::Task task();

    /// Call after the run: ends what is left of it. From then on, a signal may end this process.
    void clean_up() {
        lease_.reset();
        directory_.reset();
    }

    /// The exit code of the first rank that failed in the last start, or 128 + its signal; 0 if
    /// none has reported one.
    [[nodiscard]] int first_failed_status() const noexcept { return first_failed_; }
    /// Ranks that ended with 0 in the last start, if others did not.
    [[nodiscard]] std::vector<int> ended_well() const;

private:
    /// Adds a preload server for this start. Starts it, if there is none and it is on this machine.
    void preload(ProgramPlan& plan, const launch::LaunchRequest& start);
    /// Where the ranks start from; empty: from the beginning.
    [[nodiscard]] std::string checkpoint() const;
    [[nodiscard]] launch::LaunchEnvironment prepare(const launch::LaunchRequest& start);
    void keep(const std::string& text);
    [[nodiscard]] std::optional<std::string> result() const;
    [[nodiscard]] bool uses_mpi() const noexcept;

    const ProgramOptions& options_;
    RunBook& book_;
    std::optional<RankCalls> calls_;                     ///< of the current start
    std::optional<storage::ProcessDirectory> directory_; ///< of the control socket
    std::shared_ptr<PreloadService> preload_;            ///< of ranks on this machine
    std::string preload_name_;                           ///< of the servers on other machines
    std::optional<RunLease> lease_;                      ///< which they hold
    HeldPorts ports_;                                    ///< of the current start
    std::map<int, RankEnding> endings_;                  ///< by rank
    int first_failed_ = 0;
};

} // namespace rtrain::program

#ifndef RTRAIN_COMPILED
#include <rtrain/program/program_task_definitions.hpp>
#endif
