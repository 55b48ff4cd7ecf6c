// SPDX-License-Identifier: Apache-2.0
// Calls that fail: a run that saves, rotates and resumes is made once for each call that it makes,
// which then fails, alone or with all that follow. With --tmpfs, on a disk that is full.
#include "arguments.hpp"
#include "faults.hpp"
#include "oracle.hpp"
#include "processes.hpp"
#include "violations.hpp"
#include "workload.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <sys/mount.h>

using namespace crash;

namespace {

struct Trial {
    Saving saving;
    Fault fault;
    bool goes_on; ///< the training function catches what report() throws
};

std::string describe(const Trial& trial) {
    return name_of(trial.saving) + ", call " + std::to_string(trial.fault.call) + ": " +
           (trial.fault.error == 0 ? "half" : ::strerrorname_np(trial.fault.error)) +
           (trial.fault.persistent ? ", persistent" : ", once") +
           (trial.goes_on ? ", training goes on" : "");
}

/// Two fit() calls on one run, of which either may fail, with what they promise.
struct Attempts {
    Promise promise;
    std::vector<Outcome> outcomes;
    std::set<int> with_failed_reports; ///< attempts that have caught what report() threw
};

Attempts attempts(const Trial& trial, const std::filesystem::path& storage,
                  const std::filesystem::path& scratch, std::int64_t elements) {
    Attempts all{Promise(trial.saving), {}, {}};
    for (int number = 1; number <= 2; ++number) {
        Job job{.saving = trial.saving, .storage = storage, .scratch = scratch, .attempt = number};
        job.until = 5 * number;
        job.go_on_after_errors = trial.goes_on;
        job.elements = elements;
        job.on_training = [&, number](int step) {
            all.promise.keep({Mark::What::training, number, step, false});
        };
        job.on_returned = [&, number](int step, bool checkpoint) {
            all.promise.keep({Mark::What::returned, number, step, checkpoint});
        };
        job.on_failed = [&, number](int step, bool in_report) {
            if (in_report) {
                all.with_failed_reports.insert(number);
            }
            all.promise.keep({Mark::What::thrown, number, step, false});
        };
        all.promise.keep({Mark::What::attempt, number, 0, false});
        all.outcomes.push_back(train(job));
        if (all.outcomes.back().error.empty()) {
            all.promise.keep({Mark::What::finished, number, 0, false});
        } else { // whether error.json could be written, nobody knows
            all.promise.keep({Mark::What::attempt, number, 0, false});
        }
    }
    return all;
}

void judge_outcomes(const Trial& trial, const Attempts& all, const FaultReport& faults,
                    std::vector<std::string>& wrong) {
    bool any_error = false;
    for (const Outcome& outcome : all.outcomes) {
        any_error = any_error || !outcome.error.empty();
        if (!outcome.typed) {
            wrong.push_back("untyped: " + outcome.error);
        }
        for (const auto& what : outcome.mixed) {
            wrong.push_back("mixed: " + what);
        }
    }
    for (const int number : all.with_failed_reports) {
        if (all.outcomes[static_cast<std::size_t>(number - 1)].error.empty()) {
            wrong.push_back("swallowed: a report failed, and the attempt succeeded");
        }
    }
    if (faults.happened && !trial.fault.persistent && all.with_failed_reports.size() > 1) {
        wrong.push_back("stuck: one call failed, and reports of both attempts");
    }
    if (faults.sync_retried[0] != '\0') {
        wrong.push_back(std::string("retried: fsync was called again after it had failed, on ") +
                        faults.sync_retried);
    }
    // A checkpoint that cannot be deleted is worth a warning only.
    const std::string_view before(faults.before);
    const bool deletes =
        before.starts_with("rename exp/r/checkpoint_") || before.starts_with("rename exp/r/own_");
    // So is what a tracker makes anew from result.json.
    const bool is_tracker = is_of_tracker(faults.at + std::string(faults.before));
    const bool loses_data =
        std::string_view(faults.at).starts_with("fsync") && !deletes && !is_tracker;
    if (loses_data && !any_error && !trial.goes_on) {
        wrong.push_back("swallowed: nobody learns that fsync failed");
    }
}

std::vector<std::string> run_trial(const Trial& trial, const std::filesystem::path& place) {
    const auto storage = fresh(place / "storage");
    const auto own = fresh(place / "own");
    start_failing(storage, trial.fault);
    const Attempts all = attempts(trial, storage, own, Subject{}.elements);
    const FaultReport faults = stop_failing();
    if (!faults.happened) {
        return {};
    }
    std::vector<std::string> wrong;
    judge_outcomes(trial, all, faults, wrong);
    for (auto& what : Oracle(all.promise, storage, own, {.has_gaps = trial.goes_on}).judge()) {
        wrong.push_back(std::move(what));
    }
    for (std::string& what : wrong) {
        what += "  [" + std::string(faults.at) + " behind " + faults.before + "]";
    }
    return wrong;
}

/// How many calls the two attempts make when none fails.
long count_calls(Saving saving, const std::filesystem::path& scratch) {
    const auto storage = fresh(scratch / "storage");
    start_failing(storage, {.call = -1, .error = EIO});
    const Attempts all = attempts({saving, {}, false}, storage, fresh(scratch / "own"), 300);
    const FaultReport faults = stop_failing();
    for (const Outcome& outcome : all.outcomes) {
        if (!outcome.error.empty() || !outcome.mixed.empty()) {
            std::fprintf(stderr, "without a fault: %s\n", outcome.error.c_str());
            std::exit(1);
        }
    }
    return faults.calls;
}

int fail_calls(Arguments& arguments, const std::filesystem::path& scratch) {
    const long sample = arguments.number("--sample", 1);
    const long seed = arguments.number("--seed", 1);
    const int lanes = static_cast<int>(arguments.number("--jobs", 2));
    arguments.done();
    std::vector<Trial> trials;
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    long calls = 0;
    for (const Saving saving : all_savings) {
        const long count = count_calls(saving, scratch);
        calls += count;
        // What is written in the background is not always called in the same place.
        for (long call = 0; call < count + 10; ++call) {
            for (const int error : {ENOSPC, EIO, EDQUOT, EINTR, 0}) {
                for (const bool persistent : {false, true}) {
                    for (const bool goes_on : {false, true}) {
                        if (random() % static_cast<std::uint64_t>(sample) == 0) {
                            trials.push_back({saving, {call, error, persistent}, goes_on});
                        }
                    }
                }
            }
        }
    }
    const auto begin = std::chrono::steady_clock::now();
    Violations violations;
    std::size_t bad = 0;
    in_children(
        trials.size(), lanes,
        [&](std::size_t index, int lane) {
            return run_trial(trials[index], scratch / ("lane" + std::to_string(lane)));
        },
        [&](std::size_t index, const std::vector<std::string>& wrong) {
            bad += wrong.empty() ? 0U : 1U;
            for (const std::string& what : wrong) {
                violations.add(what, describe(trials[index]));
            }
        });
    violations.tell();
    std::printf(
        "{\"test\": \"crash_faults\", \"calls\": %ld, \"trials\": %zu, \"bad_trials\": %zu%s, "
        "\"seconds\": %.1f}\n",
        calls, trials.size(), bad, violations.json().c_str(),
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return bad == 0 ? 0 : 1;
}

/// Runs on a disk of 8 MiB that a file leaves less and less of.
int fill_disk(Arguments& arguments, const std::filesystem::path& scratch) {
    const long step = arguments.number("--step-kib", 64);
    arguments.done();
    const auto disk = scratch / "disk";
    std::filesystem::create_directories(disk);
    if (::mount("none", disk.c_str(), "tmpfs", 0, "size=8m") != 0) {
        std::printf("SKIPPED: no tmpfs may be mounted here: %s\n", std::strerror(errno));
        return 77;
    }
    constexpr std::int64_t elements = 300'000; // 1.2 MB a checkpoint
    constexpr long disk_kib = 8 * 1024;
    Violations violations;
    long trials = 0;
    long failed = 0;
    for (const Saving saving : all_savings) {
        for (const bool goes_on : {false, true}) {
            for (long free = step; free < 6L * 1024; free += step) {
                const auto storage = fresh(disk / "storage");
                std::ofstream(disk / "filler")
                    << std::string(static_cast<std::size_t>((disk_kib - free) * 1024), 'x');
                const Trial trial{saving, {}, goes_on};
                const Attempts all = attempts(trial, storage, fresh(scratch / "own"), elements);
                std::filesystem::remove(disk / "filler");
                std::vector<std::string> wrong;
                judge_outcomes(trial, all, {}, wrong);
                const auto later = Oracle(all.promise, storage, fresh(scratch / "own"),
                                          {.elements = elements, .has_gaps = goes_on})
                                       .judge();
                wrong.insert(wrong.end(), later.begin(), later.end());
                for (const std::string& what : wrong) {
                    violations.add(what, name_of(saving) + ", " + std::to_string(free) +
                                             " KiB free" + (goes_on ? ", training goes on" : ""));
                }
                ++trials;
                failed += all.outcomes.front().error.empty() ? 0 : 1;
            }
        }
    }
    ::umount(disk.c_str());
    violations.tell();
    std::printf(
        "{\"test\": \"crash_faults --tmpfs\", \"trials\": %ld, \"ran_out_of_space\": %ld%s}\n",
        trials, failed, violations.json().c_str());
    return violations.none() && failed > 0 ? 0 : 1;
}

} // namespace

int main(int count, char** values) {
    prepare_process();
    Arguments arguments(count, values);
    const Scratch scratch;
    return arguments.flag("--tmpfs") ? fill_disk(arguments, scratch.path())
                                     : fail_calls(arguments, scratch.path());
}
