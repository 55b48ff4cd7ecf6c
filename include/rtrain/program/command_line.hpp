// SPDX-License-Identifier: Apache-2.0
/// @file
/// The command line of `rtrain run`, which also accepts the options of torchrun.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/program/program_options.hpp>

#include <string>
#include <vector>

namespace rtrain::program {

/// `rtrain run [options] [-m] program ...`.
struct RunCommand {
    ProgramOptions options{};
    std::vector<std::string> ignored{}; ///< options of torchrun without a meaning here
    bool help = false;

    static const char* const usage;

    /// `words`: those after `run`. Throws ConfigError [RT-E5] to [RT-E9], [RT-E14].
    [[nodiscard]] static RunCommand parse(const std::vector<std::string>& words);
};

} // namespace rtrain::program

#ifndef RTRAIN_COMPILED
#include <rtrain/program/command_line_definitions.hpp>
#endif
