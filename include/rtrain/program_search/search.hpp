// SPDX-License-Identifier: Apache-2.0
/// @file
/// A search over a program: each trial is a run of it. The door between Tuner and the
/// implementation.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/tune/options.hpp>
#include <rtrain/tune/record/result_grid.hpp>
#include <rtrain/tune/tuner_core.hpp>

namespace rtrain {
struct ProgramOptions;
}

namespace rtrain::tune {
class Trial;
}

namespace rtrain::detail {

class ProgramSearch : public TunerCore {
public:
    /// `program` identifies what is tuned. Throws ConfigError for invalid options.
    ProgramSearch(TunerOptions options, const ProgramOptions& program);

    /// See Tuner.
    ResultGrid fit(const ProgramOptions& program);

private:
    [[nodiscard]] Work work(const ProgramOptions& program) const;
    [[nodiscard]] ProgramOptions options_of(const tune::Trial& trial,
                                            const ProgramOptions& program) const;
};

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/program_search/search_definitions.hpp>
#endif
