// SPDX-License-Identifier: Apache-2.0
/// @file
/// The traces whose crash states are enumerated: a run that saves, rotates, fails, resumes and
/// ends, and runs that take up what a crash has left.
#pragma once

#include "model.hpp"
#include "oracle.hpp"
#include "processes.hpp"
#include "trace.hpp"
#include "workload.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace crash {

struct Scenario {
    std::string name;
    Promise promise; ///< before the first operation
    Trace trace;
};

/// One fit(), with marks. Ends the program when it does not go as it should.
inline void attempt(Job job) {
    const int number = job.attempt;
    job.on_training = [=](int step) { mark({Mark::What::training, number, step, false}); };
    job.on_returned = [=](int step, bool checkpoint) {
        mark({Mark::What::returned, number, step, checkpoint});
    };
    mark({Mark::What::attempt, number, 0, false});
    const Outcome outcome = train(job);
    const bool fails = job.throw_after != 0;
    if (!outcome.mixed.empty() || outcome.error_code != (fails ? "RT-T1" : "")) {
        std::fprintf(stderr, "a run without any fault went wrong: %s\n", outcome.error.c_str());
        std::exit(1);
    }
    mark({fails ? Mark::What::failed : Mark::What::finished, number, 0, false});
}

/// A new run that fails twice, behind reports without checkpoint, and resumes.
inline Scenario whole_run(Saving saving, const std::filesystem::path& scratch) {
    const auto storage = fresh(scratch / "storage");
    const auto own = fresh(scratch / "own");
    start_recording(storage);
    attempt({.saving = saving,
             .storage = storage,
             .scratch = own,
             .attempt = 1,
             .until = 9,
             .throw_after = 6});
    attempt({.saving = saving,
             .storage = storage,
             .scratch = own,
             .attempt = 2,
             .until = 10,
             .throw_after = 9});
    attempt({.saving = saving, .storage = storage, .scratch = own, .attempt = 3, .until = 10});
    return {name_of(saving), Promise(saving), stop_recording()};
}

/// A run that takes up what a crash has left: resumes, saves, and ends.
inline Scenario resumed_run(const std::string& name, const Tree& left, Promise promise,
                            const std::filesystem::path& scratch) {
    const auto storage = scratch / "storage";
    const auto own = fresh(scratch / "own");
    std::filesystem::remove_all(storage);
    materialise(left, storage);
    std::vector<Run::Report> reports;
    for (const char* file : {"result.json", "superseded.json"}) {
        for (const auto& report : readable_reports(run_of(storage) / file)) {
            reports.push_back(report);
        }
    }
    promise.outlive_crash(reports);
    start_recording(storage);
    attempt({.saving = promise.saving(),
             .storage = storage,
             .scratch = own,
             .attempt = 50,
             .steps_more = 3});
    return {name, promise, stop_recording()};
}

} // namespace crash
