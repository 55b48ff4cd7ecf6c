// SPDX-License-Identifier: Apache-2.0
/// @file
/// ProgramTrainer: trains by running any program on ranks, such as a script of PyTorch. Guide:
/// docs/programs.md.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/program/program_options.hpp>
#include <rtrain/program/rendezvous.hpp>

#include <utility>

namespace rtrain {

namespace program {

/// Becomes the parent of a rank if the driver has started this process as one. Before main(), so
/// that each program with a ProgramTrainer can be that parent.
bool become_rank_parent();
inline const bool is_no_rank_parent = become_rank_parent();

} // namespace program

/// @code
/// rtrain::ProgramTrainer trainer{{
///     .command = {"python3", "train.py", "--lr", "0.1"},
///     .scaling = {.num_workers = 4},
///     .run = {.name = "bert", .storage_path = "results", .failure = {.max_failures = 3}},
/// }};
/// const rtrain::Result result = trainer.fit();
/// @endcode
class ProgramTrainer {
public:
    explicit ProgramTrainer(ProgramOptions options) : options_(std::move(options)) {}

    /// Runs the program until all of its ranks have exited with 0. Throws what Trainer::fit()
    /// throws, and ConfigError [RT-E5] to [RT-E13]. A preempted run ends this process with code 75.
    Result fit();

    [[nodiscard]] const ProgramOptions& options() const noexcept { return options_; }

private:
    ProgramOptions options_;
};

} // namespace rtrain

#ifndef RTRAIN_COMPILED
#include <rtrain/program/program_trainer_definitions.hpp>
#endif
