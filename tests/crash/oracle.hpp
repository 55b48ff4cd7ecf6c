// SPDX-License-Identifier: Apache-2.0
/// @file
/// Judges a run's directory after a crash: what was promised must be there, and training must go on
/// from it.
#pragma once

#include "trace.hpp"
#include "workload.hpp"

#include <rtrain/base/error.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace crash {

/// What a run may not lose any more.
class Promise {
public:
    explicit Promise(Saving saving) : saving_(saving) {}

    void keep(const Mark& mark) {
        switch (mark.what) {
        case Mark::What::attempt:
            failed_ = clean_ = false;
            break;
        case Mark::What::training:
            started_ = clean_ = true;
            step_ = std::max(step_, mark.step);
            durable_ = reported_; // this attempt goes on from all that it has found
            saved_ = mark.step;
            break;
        case Mark::What::returned:
            reported_.insert({mark.step, mark.attempt});
            clean_ = false; // the training function may throw now
            if (mark.checkpoint) {
                // An asynchronous report promises the checkpoint before its own.
                step_ = std::max(step_, saving_ == Saving::async ? saved_ : mark.step);
                pointer_ = saving_ == Saving::async ? pointer_ : mark.step;
                saved_ = mark.step;
                durable_ = reported_;
            }
            break;
        case Mark::What::thrown:
            saved_ = step_; // what was being saved in the background has perhaps failed
            break;
        case Mark::What::finished:
            step_ = pointer_ = std::max(step_, saved_);
            clean_ = true;
            break;
        case Mark::What::failed:
            failed_ = true;
            clean_ = false;
            break;
        case Mark::What::nothing:
            break;
        }
    }

    /// The power has failed and these reports are on disk: nothing takes them away but a fault.
    void outlive_crash(const std::vector<Run::Report>& reports) {
        reported_ = durable_;
        for (const auto& report : reports) {
            reported_.insert({report.step, report.attempt});
        }
    }

    [[nodiscard]] Saving saving() const { return saving_; }
    /// The newest checkpoint is of this step or a later one.
    [[nodiscard]] int step() const { return step_; }
    /// A training function has begun, so result.json and params.json are there.
    [[nodiscard]] bool started() const { return started_; }
    [[nodiscard]] bool failed() const { return failed_; }
    /// No attempt before has left word of a failure that is over.
    [[nodiscard]] bool clean() const { return clean_; }
    /// `latest` names a checkpoint of this step or a later one.
    [[nodiscard]] int pointer() const { return pointer_; }
    /// Step and attempt of the reports that are in result.json or superseded.json.
    [[nodiscard]] const std::set<std::pair<int, int>>& reports() const { return durable_; }

    friend auto operator<=>(const Promise&, const Promise&) = default;

private:
    Saving saving_;
    int step_ = 0;
    int saved_ = 0; ///< the last one whose report() has returned
    bool started_ = false;
    bool failed_ = false;
    bool clean_ = false;
    int pointer_ = 0;
    std::set<std::pair<int, int>> reported_;
    std::set<std::pair<int, int>> durable_;
};

/// Half-written or abandoned: not there once a run has started again.
[[nodiscard]] inline std::vector<std::string> leftovers(const std::filesystem::path& storage) {
    static const std::set<std::string> known{".lock", ".validate_storage_marker", ".metadata.json",
                                             ".validation.json"};
    std::vector<std::string> found;
    for (const auto& item : std::filesystem::recursive_directory_iterator(storage)) {
        const std::string name = item.path().filename().string();
        if ((name.starts_with('.') && !known.contains(name)) ||
            name.find(".tmp") != std::string::npos || name.find(".trash") != std::string::npos) {
            found.push_back(item.path().lexically_relative(storage).string());
        }
    }
    return found;
}

/// What a thread of a tracker writes, and the page that shows the run.
[[nodiscard]] inline bool is_of_tracker(const std::string& path) {
    return std::ranges::any_of(
        std::array{"progress.csv", "trackers.json", "tensorboard", "report.html", "run.json",
                   copy_file},
        [&](const char* part) { return path.find(part) != std::string::npos; });
}

[[nodiscard]] inline std::vector<std::string>
checkpoint_directories(const std::filesystem::path& run) {
    std::vector<std::string> names;
    for (const auto& item : std::filesystem::directory_iterator(run)) {
        if (item.path().filename().string().starts_with("checkpoint_")) {
            names.push_back(item.path().filename().string());
        }
    }
    return names;
}

/// What kind of run is judged.
struct Subject {
    std::int64_t elements = 300; ///< Job::elements
    /// Reports have failed, and training has gone on: iterations are no longer steps.
    bool has_gaps = false;
};

/// What is wrong with a run, each as "kind: what". Kinds: unreadable, unloadable, mixed, lost,
/// retention, history, pointer, leftover, damaged.
class Oracle {
public:
    /// `scratch` is an empty directory for the oracle's own use.
    Oracle(const Promise& promise, std::filesystem::path storage, std::filesystem::path scratch,
           const Subject& subject = {})
        : promise_(promise), subject_(subject), storage_(std::move(storage)),
          run_(run_of(storage_)), scratch_(std::move(scratch)) {}

    /// Reads the run, loads its checkpoints, trains on for two steps.
    [[nodiscard]] std::vector<std::string> judge() {
        read();
        go_on();
        return std::move(wrong_);
    }

    /// Reads the run and loads its checkpoints; changes nothing.
    void read() {
        if (std::filesystem::exists(run_)) {
            read_files();
        } else if (promise_.started()) {
            add("lost", "the run's directory");
        }
    }

    /// To be called when a training function that goes on from `step` begins.
    void begin(int step) {
        if (step < promise_.step()) {
            add("lost", "training goes on from step " + std::to_string(step) + " instead of " +
                            std::to_string(promise_.step()));
        }
        if (step != newest_) {
            add("unloadable", "training goes on from step " + std::to_string(step) +
                                  ", but the newest checkpoint was of step " +
                                  std::to_string(newest_));
        }
        for (const auto& name : leftovers(storage_)) {
            if (!is_of_tracker(name)) { // their threads have begun, too
                add("leftover", name);
            }
        }
        try {
            check_history(look(run_), step);
        } catch (const std::exception& error) {
            add("unreadable", error.what());
        }
        check_reports();
    }

    /// To be called with what has become of that training.
    void end(const Outcome& outcome) {
        for (const auto& what : outcome.mixed) {
            add("mixed", what);
        }
        if (!outcome.error.empty()) {
            add(outcome.resumed < 0 ? "unloadable" : "unreadable", outcome.error);
        }
    }

    [[nodiscard]] const std::vector<std::string>& wrong() const { return wrong_; }

private:
    void add(const std::string& kind, const std::string& what) {
        wrong_.push_back(kind + ": " + what);
    }

    void read_files() {
        try {
            const Run run = look(run_);
            check_history(run, 0);
            check_checkpoints(run);
            if (promise_.failed() && run.error_code != "RT-T1") {
                add("lost", "the reason for which the run failed");
            }
            if (promise_.clean() && run.error_code) {
                add("history", "a failure that is over is still there");
            }
            check_pointer(run);
        } catch (const rtrain::Error& error) {
            if (error.code() != "RT-S6" || promise_.started()) {
                add("unreadable", error.what());
            }
        } catch (const std::exception& error) {
            add("unreadable", error.what());
        }
        check_reports();
        check_small_files();
    }

    void check_pointer(const Run& run) {
        std::string name = text_of("latest");
        if (name.empty()) {
            if (promise_.pointer() > 0) {
                add("pointer", "latest names no checkpoint");
            }
            return;
        }
        name.pop_back();
        const auto named =
            std::find_if(run.checkpoints.begin(), run.checkpoints.end(),
                         [&](const auto& item) { return item.first.filename() == name; });
        if (named == run.checkpoints.end()) {
            add("pointer", "latest names " + name + ", which is no checkpoint");
        } else if (named->second < promise_.pointer()) {
            add("pointer", "latest names step " + std::to_string(named->second) + " instead of " +
                               std::to_string(promise_.pointer()));
        }
    }

    [[nodiscard]] std::string text_of(const char* name) const {
        std::ifstream file(run_ / name, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    /// Each iteration once, in order, and as many as `exactly`, unless that is 0.
    void check_history(const Run& run, int exactly) {
        int iteration = 0;
        int step = 0;
        for (const auto& report : run.reports) {
            ++iteration;
            const bool follows =
                subject_.has_gaps ? report.step > step : report.step == report.iteration;
            if (report.iteration != iteration || !follows) {
                add("history", "line " + std::to_string(iteration) + " is of iteration " +
                                   std::to_string(report.iteration) + ", step " +
                                   std::to_string(report.step));
                return;
            }
            step = report.step;
        }
        if (exactly != 0 && iteration != exactly && !subject_.has_gaps) {
            add("history",
                std::to_string(iteration) + " lines instead of " + std::to_string(exactly));
        }
    }

    void check_checkpoints(const Run& run) {
        for (const std::string& name : checkpoint_directories(run_)) {
            const bool listed =
                std::any_of(run.checkpoints.begin(), run.checkpoints.end(),
                            [&](const auto& item) { return item.first.filename() == name; });
            if (!listed) {
                add("damaged", name + " is no sound checkpoint");
            }
        }
        std::set<int> steps;
        for (const auto& [path, step] : run.checkpoints) {
            steps.insert(step);
            load(path, step);
        }
        newest_ = steps.empty() ? 0 : *steps.rbegin();
        if (newest_ < promise_.step()) {
            add("lost", "the newest checkpoint is of step " + std::to_string(newest_) +
                            " instead of " + std::to_string(promise_.step()));
        }
        const int before = newest_ == 0 ? 0 : last_saving(newest_ - 1);
        if (before > 0 && !steps.contains(before) && !subject_.has_gaps) {
            add("retention", "the checkpoint of step " + std::to_string(before) + " is gone");
        }
    }

    /// Loads a checkpoint into another run.
    void load(const std::filesystem::path& checkpoint, int step) {
        const Outcome outcome = train({.saving = promise_.saving(),
                                       .storage = scratch_ / "other",
                                       .scratch = scratch_,
                                       .elements = subject_.elements,
                                       .resume_from = checkpoint});
        std::filesystem::remove_all(scratch_ / "other");
        if (!outcome.error.empty()) {
            add("unloadable", checkpoint.filename().string() + ": " + outcome.error);
        } else if (outcome.resumed != step) {
            add("mixed", checkpoint.filename().string() + " is listed as step " +
                             std::to_string(step) + " and holds " +
                             std::to_string(outcome.resumed));
        }
        for (const auto& what : outcome.mixed) {
            add("mixed", checkpoint.filename().string() + ": " + what);
        }
    }

    void check_reports() {
        std::set<std::pair<int, int>> found;
        for (const char* file : {"result.json", "superseded.json"}) {
            for (const auto& report : readable_reports(run_ / file)) {
                found.insert({report.step, report.attempt});
            }
        }
        for (const auto& [step, attempt] : promise_.reports()) {
            if (!found.contains({step, attempt})) {
                add("lost", "the report of step " + std::to_string(step) + " in attempt " +
                                std::to_string(attempt));
            }
        }
    }

    void check_small_files() {
        const bool params = std::filesystem::exists(run_ / "params.json");
        if (params ? text_of("params.json") != "{\n  \"lr\": 1E-1,\n  \"name\": \"crash\"\n}\n"
                   : promise_.started()) {
            add("lost", "params.json");
        }
        if (promise_.started() && !text_of("trainer.json").ends_with('}')) {
            add("lost", "trainer.json");
        }
    }

    /// Behind a fit() call that has ended, trackers show what result.json has.
    void check_trackers(const Run& run) {
        if (readable_reports(run_ / copy_file) != run.reports) {
            add("tracker", std::string(copy_file) + " is not as result.json");
        }
        if (shown_by_tensorboard(run_) != run.reports) {
            add("tracker", "TensorBoard's event files are not as result.json");
        }
        std::istringstream table(text_of("progress.csv"));
        std::string row;
        std::getline(table, row);
        bool same = row.starts_with("step,attempt,timestamp");
        for (const auto& report : run.reports) {
            const auto begin =
                std::to_string(report.step) + "," + std::to_string(report.attempt) + ",";
            same = same && std::getline(table, row) && row.starts_with(begin);
        }
        if (!same || std::getline(table, row)) {
            add("tracker", "progress.csv is not as result.json");
        }
    }

    void go_on() {
        constexpr int more = 2; // at least one of them saves
        const Outcome outcome = train({.saving = promise_.saving(),
                                       .storage = storage_,
                                       .scratch = scratch_,
                                       .attempt = 1000,
                                       .steps_more = more,
                                       .elements = subject_.elements,
                                       .on_training = [&](int step) { begin(step); }});
        end(outcome);
        if (!outcome.error.empty()) {
            return;
        }
        try {
            const int last = outcome.resumed + more;
            const Run run = look(run_);
            check_history(run, last);
            check_trackers(run);
            const int saved = last - last / 3; // steps that save
            const auto expected = static_cast<std::size_t>(std::min(kept, saved));
            if ((run.checkpoints.size() != expected && !subject_.has_gaps) ||
                run.checkpoints.empty() || run.checkpoints.back().second != last_saving(last)) {
                add("retention", "training on has left other checkpoints than it should");
            }
            for (const auto& name : leftovers(storage_)) {
                add("leftover", name + " after training on");
            }
        } catch (const std::exception& error) {
            add("unreadable", error.what());
        }
    }

    const Promise& promise_;
    Subject subject_;
    std::filesystem::path storage_;
    std::filesystem::path run_;
    std::filesystem::path scratch_;
    int newest_ = 0; ///< of the checkpoints that are listed
    std::vector<std::string> wrong_;
};

} // namespace crash
