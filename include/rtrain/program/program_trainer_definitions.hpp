// SPDX-License-Identifier: Apache-2.0
/// @file
/// Definitions of program/program_trainer.hpp.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/process/os/child.hpp>
#include <rtrain/program/plan.hpp>
#include <rtrain/program/program_run.hpp>
#include <rtrain/program/program_trainer.hpp>
#include <rtrain/program/rank_parent.hpp>

#include <cstdlib>
#include <string>
#include <vector>

#include <unistd.h>

namespace rtrain {

RTRAIN_DOOR bool program::become_rank_parent() {
    if (std::getenv(ProgramPlan::variable) == nullptr) {
        return true;
    }
    const std::vector<std::string> words = launch::own_command_line();
    constexpr std::size_t own = 3; // program exec --
    if (words.size() > own && words[1] == "exec" && words[2] == "--") {
        ::_exit(RankParent({words.begin() + own, words.end()}).run());
    }
    return true;
}

RTRAIN_DOOR Result ProgramTrainer::fit() {
    const program::ProgramEnd end = program::run_program(options_);
    if (!end.failure) {
        return Result::from_path(end.run, options_.run.storage_filesystem);
    }
    if (end.failure->code == PreemptionError::own_code) {
        console::say("%s", end.failure->message.c_str());
        std::exit(end.status);
    }
    program::throw_failure(*end.failure);
}

} // namespace rtrain
