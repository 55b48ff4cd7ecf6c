// SPDX-License-Identifier: Apache-2.0
/// @file
/// One run of a program on ranks: its directory, its logs, its task, and how it ended.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/journal/observer.hpp>
#include <rtrain/journal/rank_logs.hpp>
#include <rtrain/launch/supervise/program.hpp>
#include <rtrain/program/process/preload_server.hpp>
#include <rtrain/program/program_options.hpp>
#include <rtrain/program/program_task.hpp>
#include <rtrain/program/report/run_book.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace rtrain::program {

struct ProgramEnd {
    std::optional<Failure> failure{}; ///< empty: all ranks ended with 0
    /// The program's exit code, 128 + the signal that killed it, or 75 if it was preempted.
    int status = 0;
    std::filesystem::path run{}; ///< its directory: a path, or a path in a file system
};

/// Returns the options with a name, and limits for a program that does not report progress. Throws
/// ConfigError [RT-E5] to [RT-E13], [RT-E66].
[[nodiscard]] ProgramOptions complete(ProgramOptions options);

/// A run for a Supervisor. Used by one thread at a time.
class ProgramRun {
public:
    /// `preload`: shared with other runs; null: its own. Throws what complete() throws,
    /// StorageError [RT-S1], [RT-S7].
    explicit ProgramRun(ProgramOptions options, std::shared_ptr<PreloadService> preload = nullptr);

    [[nodiscard]] const ProgramOptions& options() const noexcept { return options_; }
    /// Receive the ranks' lines.
    [[nodiscard]] track::RankLogs& logs() noexcept { return logs_; }
    /// Adds an observer of the run. Call before the run starts.
    void add(std::shared_ptr<track::Observer> observer) { book_.add(std::move(observer)); }
    /// The task; this object outlives it.
    [[nodiscard]] launch::Task task() { return task_.task(); }
    /// See ProgramTask.
    void clean_up() { task_.clean_up(); }
    /// Call after the last rank has ended.
    [[nodiscard]] ProgramEnd end(const launch::RunEnd& end);

private:
    ProgramOptions options_;
    RunBook book_;
    track::RankLogs logs_;
    ProgramTask task_;
};

/// Runs the program, and starts it again after failures. Throws what ProgramRun throws. A signal
/// that ends this process is raised again.
[[nodiscard]] ProgramEnd run_program(ProgramOptions options);

/// Throws the failure of a run as Trainer::fit() does.
[[noreturn]] void throw_failure(const Failure& failure);

} // namespace rtrain::program

#ifndef RTRAIN_COMPILED
#include <rtrain/program/program_run_definitions.hpp>
#endif
