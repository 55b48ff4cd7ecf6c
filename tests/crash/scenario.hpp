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

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace crash {

struct Scenario {
    std::string name;
    Promise promise; ///< before the first operation
    Trace trace;
    std::size_t first_point = 0; ///< what comes before is in another scenario
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

/// A new run that fails twice, behind reports without checkpoint, and resumes. Trackers sync the
/// run's directory, too, so a run without them shows what does not need them.
inline Scenario whole_run(Saving saving, const std::filesystem::path& scratch,
                          bool has_trackers = true) {
    const auto storage = fresh(scratch / "storage");
    const auto own = fresh(scratch / "own");
    start_recording(storage);
    attempt({.saving = saving,
             .storage = storage,
             .scratch = own,
             .attempt = 1,
             .until = 9,
             .throw_after = 6,
             .has_trackers = has_trackers});
    attempt({.saving = saving,
             .storage = storage,
             .scratch = own,
             .attempt = 2,
             .until = 10,
             .throw_after = 9,
             .has_trackers = has_trackers});
    attempt({.saving = saving,
             .storage = storage,
             .scratch = own,
             .attempt = 3,
             .until = 10,
             .has_trackers = has_trackers});
    return {name_of(saving) + (has_trackers ? "" : ", without trackers"), Promise(saving),
            stop_recording()};
}

/// The reports that are on disk.
inline std::vector<Run::Report> reports_in(const std::filesystem::path& run) {
    std::vector<Run::Report> reports;
    for (const char* file : {"result.json", "superseded.json"}) {
        const auto found = readable_reports(run / file);
        reports.insert(reports.end(), found.begin(), found.end());
    }
    return reports;
}

/// The disk and the promise before operation `point`.
inline Disk replay(const Scenario& scenario, std::size_t point, Promise& promise) {
    Disk disk(scenario.trace);
    promise = scenario.promise;
    while (disk.point() < point) {
        promise.keep(scenario.trace.operations[disk.point()].mark);
        disk.advance();
    }
    return disk;
}

/// Takes up what is in `storage`: resumes, saves, and ends.
inline Trace resume(Saving saving, const std::filesystem::path& scratch) {
    start_recording(scratch / "storage");
    attempt({.saving = saving,
             .storage = scratch / "storage",
             .scratch = fresh(scratch / "own"),
             .attempt = 50,
             .steps_more = 3});
    return stop_recording();
}

/// The power fails at a point of `scenario` and leaves one of the states that it can; a run takes
/// that up.
inline Scenario resumed_run(const Scenario& scenario, std::size_t point, std::uint64_t seed,
                            const std::filesystem::path& scratch) {
    Promise promise = scenario.promise;
    const Disk disk = replay(scenario, point, promise);
    States states(disk, seed);
    CrashState state = states.next();
    for (auto skip = seed % 8; skip > 0 && states.has_next(); --skip) {
        state = states.next();
    }
    const auto storage = scratch / "storage";
    std::filesystem::remove_all(storage);
    materialise(disk.tree(state), storage);
    promise.outlive_crash(reports_in(run_of(storage)));
    return {scenario.name + ", power failure before " + std::to_string(point) + ", resumed",
            promise, resume(promise.saving(), scratch)};
}

/// The numbers of `right`'s objects in `left`, which is the same tree.
inline void match(const Tree& left, Object in_left, const Tree& right, Object in_right,
                  std::map<Object, Object>& numbers) {
    numbers[in_right] = in_left;
    for (const auto& [name, child] : right.at(in_right).entries) {
        match(left, left.at(in_left).entries.at(name), right, child, numbers);
    }
}

/// The process is killed at a point of `scenario`, which loses nothing; a run takes that up, and
/// then the power fails: what the first had not synced is not durable still.
inline Scenario killed_run(const Scenario& scenario, std::size_t point,
                           const std::filesystem::path& scratch) {
    Promise promise = scenario.promise;
    const Disk disk = replay(scenario, point, promise);
    const Tree left = disk.tree(everything(disk));
    const auto storage = scratch / "storage";
    std::filesystem::remove_all(storage);
    materialise(left, storage);
    const Trace later = resume(promise.saving(), scratch);

    std::map<Object, Object> numbers;
    match(left, 0, later.before, 0, numbers);
    Scenario both{scenario.name + ", killed before " + std::to_string(point) + ", resumed",
                  scenario.promise,
                  {scenario.trace.before, {}},
                  point};
    const auto end = scenario.trace.operations.begin() + static_cast<std::ptrdiff_t>(point);
    both.trace.operations.assign(scenario.trace.operations.begin(), end);
    Object last = 0;
    for (const Operation& operation : scenario.trace.operations) {
        last = std::max(last, operation.object);
    }
    for (Operation operation : later.operations) {
        if (!numbers.contains(operation.object)) {
            numbers[operation.object] = ++last;
        }
        operation.object = numbers.at(operation.object);
        operation.directory = numbers.at(operation.directory);
        operation.to_directory = numbers.at(operation.to_directory);
        both.trace.operations.push_back(std::move(operation));
    }
    return both;
}

} // namespace crash
