// SPDX-License-Identifier: Apache-2.0
/// @file
/// A Tuner without the type of its trainable: the door between Tuner and the implementation of its
/// fit().
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/typed_function.hpp>
#include <rtrain/run/further_runs.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/tune/options.hpp>
#include <rtrain/tune/record/result_grid.hpp>
#include <rtrain/tune/threads/function_runner.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace rtrain::launch {
class Session;
}
namespace rtrain::tune {
class Slots;
struct TrialTask;
namespace internal {
class SearchLink;
}
} // namespace rtrain::tune

namespace rtrain::detail {

class TunerCore {
public:
    /// Returns the session of this process.
    [[nodiscard]] static launch::Session& begin_session();

    /// `session` outlives this object. `trainable`: identifies what is tuned, so that only the same
    /// trainable resumes its search; `config_for`: returns the configuration that it takes, or
    /// throws; `function`: its address if it is a plain function, because many of these have the
    /// same type. Throws ConfigError for invalid options.
    TunerCore(launch::Session& session, TunerOptions options, std::string trainable,
              ConfigFor config_for, const void* function = nullptr);

    [[nodiscard]] const TunerOptions& options() const noexcept { return options_; }
    /// Selects what runs again if fit() resumes a search.
    void set_restore(tune::RestoreOptions restore) noexcept { restore_ = restore; }

    /// See Tuner.
    ResultGrid fit(const tune::TrialFunction& function);

    /// The same over a trainer with these options: each trial is a run.
    ResultGrid fit(const TrainerOptions& trainer);
    /// True if this process was started for a trial of the search that is about to begin.
    [[nodiscard]] bool is_in_trial() const;
    /// Runs trials in such a process and its ranks. It never leaves `train`, which it calls with
    /// the trainer's options for a trial and further trials. `begin` is called before each trial.
    /// The process that drives the ranks writes the outcome.
    [[noreturn]] void
    drive_trials(const TrainerOptions& trainer, const std::function<void()>& begin,
                 const std::function<void(const TrainerOptions&, const FurtherRuns&)>& train) const;
    [[nodiscard]] ResultGrid get_results() const;
    [[nodiscard]] static bool can_restore(const std::filesystem::path& directory);
    /// Returns options for the search in a directory. Throws StorageError [RT-U106] where there is
    /// none.
    [[nodiscard]] static TunerOptions restored(const std::filesystem::path& directory,
                                               TunerOptions options);

protected:
    /// The plan of a search whose trials are runs. `trainer`: options of its runs; `check`: see
    /// SearchPlan.
    [[nodiscard]] tune::SearchPlan plan_of_runs(const RunConfig& trainer,
                                                std::function<void(const Config&)> check) const;
    /// The options of the run of a trial in that directory.
    [[nodiscard]] RunConfig run_of_trial(const RunConfig& trainer,
                                         const std::filesystem::path& directory) const;
    /// The work of a search, independent of the rank.
    struct Work {
        std::function<tune::SearchPlan()> plan; ///< called by the rank that leads the search
        tune::Resources each{};
        /// Number of cores for exclusive use by a trial, if enough are free; empty: none.
        std::function<std::size_t(const Config&)> cores_of{};
        tune::TrialFunction function;
        std::function<tune::FunctionRunner::Files(const tune::Assignment&)> files{};
    };
    ResultGrid fit(const std::function<Work(int fit)>& work);

private:
    [[nodiscard]] tune::SearchPlan plan() const;
    [[nodiscard]] tune::Goal goal() const;
    [[nodiscard]] RunConfig run_of_trials(const RunConfig& trainer) const;
    [[nodiscard]] std::size_t cores_of_run(const TrainerOptions& trainer,
                                           const Config& config) const;
    [[nodiscard]] TrainerOptions
    trial_options(const TrainerOptions& trainer, const tune::TrialTask& task,
                  const std::shared_ptr<tune::internal::SearchLink>& link) const;
    ResultGrid search(const Work& work, tune::Slots* slots);
    ResultGrid search_among_ranks(const Work& work);
    ResultGrid serve(const Work& work, const std::string& address, int rank);

    launch::Session* session_;
    TunerOptions options_;
    std::string trainable_;
    ConfigFor config_for_;
    const void* function_ = nullptr;
    std::filesystem::path directory_; ///< the search's directory
    tune::RestoreOptions restore_{};
};

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/tuner_core_definitions.hpp>
#endif
