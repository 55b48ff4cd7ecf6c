// SPDX-License-Identifier: Apache-2.0
/// @file
/// Definitions of program/program_run.hpp.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/grouped_errors.hpp>
#include <rtrain/config/config_checks.hpp>
#include <rtrain/journal/rank_logs.hpp>
#include <rtrain/launch/driver.hpp>
#include <rtrain/program/program_checks.hpp>
#include <rtrain/program/program_run.hpp>
#include <rtrain/program/program_task.hpp>
#include <rtrain/program/report/run_book.hpp>
#include <rtrain/run/make_way.hpp>
#include <rtrain/run/options/stop_check.hpp>

#include <csignal>
#include <utility>
#include <vector>

namespace rtrain::program {

namespace internal {

/// The options with a name, and limits for a program that does not report progress.
[[nodiscard]] inline ProgramOptions complete(ProgramOptions options) {
    detail::check_scaling(options.scaling);
    detail::check_storage(options.run);
    detail::check_failure_config(options.run.failure);
    detail::check_checkpoint_config(options.run.checkpoint);
    detail::check_console(options.run.console);
    detail::check_stop(options.run.stop);
    detail::check_run_name(options.run.name);
    check_program(options);
    if (options.run.name.empty()) {
        options.run.name = detail::generated_name();
    }
    HangConfig& hang = options.run.failure.hang;
    constexpr double idle_s = 300;
    if (hang.idle_s == HangConfig{}.idle_s) {
        hang.idle_s = idle_s;
    }
    if (hang.factor == HangConfig{}.factor) { // pauses during imports say nothing
        hang.factor = 1;
    }
    return options;
}

/// Names the ranks that had already ended well, which may be the cause of the failure of others.
[[nodiscard]] inline Failure with_cause(Failure failure, const std::vector<int>& ended_well) {
    const bool concerns_ranks = failure.kind == Failure::Kind::threw ||
                                failure.kind == Failure::Kind::died ||
                                failure.kind == Failure::Kind::hang;
    if (concerns_ranks && !ended_well.empty()) {
        failure.code = "RT-E12";
        failure.message += detail::concat(
            "; ", launch::ranks_named(ended_well),
            " had exited with code 0 while others were still running; all ranks must make the same "
            "collective calls");
    }
    return failure;
}

/// The exit code of a tool that ran the program.
[[nodiscard]] inline int status_of(const Failure& failure, int of_rank) {
    constexpr int hung = 128 + SIGABRT;
    if (failure.code == PreemptionError::own_code) {
        return preempted_exit_code;
    }
    if (failure.kind == Failure::Kind::hang) {
        return hung;
    }
    return of_rank != 0 ? of_rank : 1;
}

} // namespace internal

RTRAIN_DOOR ProgramEnd run_program(ProgramOptions options) {
    options = internal::complete(std::move(options));
    const console::ScopedLogSettings log(options.run.logging.level, options.run.logging.json);
    detail::make_way(options.run, options.run.name);
    RunBook book(options.run, options.config);
    track::RankLogs logs(book.directory().location(), options.run.logging.json,
                         [](const std::string& what) { console::warn("%s", what.c_str()); });
    ProgramTask program(options, book);
    launch::Driver driver({.task = program.task(),
                           .scaling = options.scaling,
                           .failure = options.run.failure,
                           .logs = &logs,
                           .when_over = [&] { program.remove_directory(); }});
    const launch::RunEnd end = driver.run();
    ProgramEnd result{.run = book.directory().location().path};
    if (end.failure) {
        result.failure = internal::with_cause(*end.failure, program.ended_well());
        result.status = internal::status_of(*result.failure, program.first_failed_status());
    }
    const bool is_preempted = result.failure && result.failure->code == PreemptionError::own_code;
    book.end(is_preempted     ? track::Ended::How::preempted
             : result.failure ? track::Ended::How::failed
                              : track::Ended::How::finished,
             result.failure);
    return result;
}

} // namespace rtrain::program
