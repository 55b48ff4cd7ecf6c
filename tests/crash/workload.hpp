// SPDX-License-Identifier: Apache-2.0
/// @file
/// The program under test: training whose state, metrics and epochs are all functions of one step
/// number, so that a checkpoint made of two is found out. It uses rtrain's public API only.
///
/// Step s reports {"step": s, "attempt": a}; every third step reports metrics alone.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace crash {

/// How states get into checkpoints: a policy of rtrain's, or files that the training function
/// writes itself and reports as a directory, which is copied, or which lies in the run's own.
enum class Saving : unsigned char { sync, async, sharded, directory, in_place };
inline constexpr Saving all_savings[]{Saving::sync, Saving::async, Saving::sharded,
                                      Saving::directory, Saving::in_place};
[[nodiscard]] std::string name_of(Saving saving);

/// Whether step `step` saves a checkpoint.
[[nodiscard]] constexpr bool saves(int step) {
    return step % 3 != 0;
}
/// The newest step up to `step` that saves one; 0 when there is none.
[[nodiscard]] constexpr int last_saving(int step) {
    return saves(step) || step == 0 ? step : step - 1;
}

inline constexpr int kept = 2;                         ///< num_to_keep
inline constexpr const char* copy_file = "copy.jsonl"; ///< of a tracker

struct Job {
    Saving saving = Saving::sync;
    std::filesystem::path storage; ///< the run is `storage`/exp/r
    std::filesystem::path scratch; ///< where the user's own files are, before they are reported
    int attempt = 1;
    /// The last step; `steps_more` counts from where the run goes on.
    int until = 0;
    int steps_more = 0;
    int throw_after = 0; ///< the step behind which the training function throws; 0: none
    bool has_trackers = true;
    bool go_on_after_errors = false; ///< it catches what report() throws and goes on
    std::int64_t elements = 300;     ///< of the largest tensor
    std::optional<std::filesystem::path> resume_from{};
    std::function<void(int step)> on_training{};                  ///< before the first step
    std::function<void(int step, bool checkpoint)> on_returned{}; ///< report() has returned
    std::function<void(int step, bool in_report)> on_failed{};    ///< it has caught an exception
};

[[nodiscard]] inline std::filesystem::path run_of(const std::filesystem::path& storage) {
    return storage / "exp" / "r";
}

struct Outcome {
    int resumed = -1;               ///< the step gone on from; -1: training has not begun
    int last = 0;                   ///< the last step that was reported
    std::vector<std::string> mixed; ///< what in the loaded state contradicts its step
    std::string error_code;         ///< of what fit() threw; "" when it threw nothing
    std::string error;              ///< its message
    bool typed = true;              ///< that was an rtrain::Error, as was what report() threw
};

/// Trains. Throws nothing.
[[nodiscard]] Outcome train(const Job& job);

/// What there is of a run, as Result::from_path tells it.
struct Run {
    struct Report {
        int iteration = 0, step = 0, attempt = 0;
        friend auto operator<=>(const Report&, const Report&) = default;
    };
    std::vector<Report> reports;
    std::vector<std::pair<std::filesystem::path, int>> checkpoints; ///< with their step
    std::optional<std::string> error_code;
};

/// Throws rtrain::Error; RT-S6 when there is no run.
[[nodiscard]] Run look(const std::filesystem::path& run);

/// The reports in a file of JSON lines that can be read.
[[nodiscard]] std::vector<Run::Report> readable_reports(const std::filesystem::path& file);

/// What TensorBoard shows of a run.
[[nodiscard]] std::vector<Run::Report> shown_by_tensorboard(const std::filesystem::path& run);

/// Makes torch and rtrain behave in processes that are forked in thousands. First in main().
void prepare_process();

} // namespace crash
