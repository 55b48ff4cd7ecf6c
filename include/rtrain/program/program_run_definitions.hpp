// SPDX-License-Identifier: Apache-2.0
/// @file
/// Definitions of program/program_run.hpp.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/grouped_errors.hpp>
#include <rtrain/config/config_checks.hpp>
#include <rtrain/launch/driver.hpp>
#include <rtrain/program/program_checks.hpp>
#include <rtrain/program/program_run.hpp>
#include <rtrain/run/make_way.hpp>
#include <rtrain/run/options/stop_check.hpp>

#include <csignal>
#include <utility>
#include <vector>

namespace rtrain::program {

namespace internal {

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

RTRAIN_DOOR ProgramOptions complete(ProgramOptions options) {
    detail::check_scaling(options.scaling);
    detail::check_storage(options.run);
    detail::check_failure_config(options.run.failure);
    detail::check_checkpoint_config(options.run.checkpoint);
    detail::check_console(options.run.console);
    detail::check_stop(options.run.stop);
    detail::check_run_name(options.run.name);
    check_program(options);
    require_json(options.config, "");
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

namespace internal {

/// The same, after the old directory of a run that starts over has made way.
[[nodiscard]] inline ProgramOptions with_a_place(ProgramOptions options) {
    options = complete(std::move(options));
    detail::make_way(options.run, options.run.name);
    return options;
}

} // namespace internal

RTRAIN_DOOR ProgramRun::ProgramRun(ProgramOptions options, std::shared_ptr<PreloadService> preload)
    : options_(internal::with_a_place(std::move(options))), book_(options_.run, options_.config),
      logs_(book_.directory().location(), options_.run.logging.json,
            [](const std::string& what) { console::warn("%s", what.c_str()); }),
      task_(options_, book_, std::move(preload)) {}

RTRAIN_DOOR ProgramEnd ProgramRun::end(const launch::RunEnd& end) {
    ProgramEnd result{.run = book_.directory().location().path};
    if (end.failure) {
        result.failure = internal::with_cause(*end.failure, task_.ended_well());
        result.status = internal::status_of(*result.failure, task_.first_failed_status());
    }
    const bool is_preempted = result.failure && result.failure->code == PreemptionError::own_code;
    book_.end(is_preempted     ? track::Ended::How::preempted
              : result.failure ? track::Ended::How::failed
                               : track::Ended::How::finished,
              result.failure);
    return result;
}

RTRAIN_DOOR ProgramEnd run_program(ProgramOptions options) {
    const console::ScopedLogSettings log(options.run.logging.level, options.run.logging.json);
    ProgramRun run(std::move(options));
    launch::Driver driver({.task = run.task(),
                           .scaling = run.options().scaling,
                           .failure = run.options().run.failure,
                           .logs = &run.logs(),
                           .when_over = [&] { run.clean_up(); }});
    return run.end(driver.run());
}

RTRAIN_DOOR void throw_failure(const Failure& failure) {
    if (failure.code == "RT-T1") {
        throw TrainingFailedError(failure.message, {failure});
    }
    detail::throw_error(failure);
}

} // namespace rtrain::program
