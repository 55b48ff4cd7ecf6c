// SPDX-License-Identifier: Apache-2.0
/// @file
/// One run of a program on ranks: its directory, its driver, and how it ended.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/failure.hpp>
#include <rtrain/program/program_options.hpp>

#include <filesystem>
#include <optional>

namespace rtrain::program {

struct ProgramEnd {
    std::optional<Failure> failure{}; ///< empty: all ranks ended with 0
    /// The program's exit code, 128 + the signal that killed it, or 75 if it was preempted.
    int status = 0;
    std::filesystem::path run{}; ///< its directory: a path, or a path in a file system
};

/// Runs the program, and starts it again after failures. Throws ConfigError [RT-E5] to [RT-E13],
/// StorageError [RT-S1], [RT-S7]. A signal that ends this process is raised again.
[[nodiscard]] ProgramEnd run_program(ProgramOptions options);

} // namespace rtrain::program

#ifndef RTRAIN_COMPILED
#include <rtrain/program/program_run_definitions.hpp>
#endif
