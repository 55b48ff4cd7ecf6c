// SPDX-License-Identifier: Apache-2.0
/// @file
/// A Tuner without the type of what it tunes: the door between Tuner and everything that its fit()
/// sets in motion.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/run/further_runs.hpp>
#include <rtrain/run/options.hpp>
#include <rtrain/tune/function_runner.hpp>
#include <rtrain/tune/options.hpp>
#include <rtrain/tune/record/result_grid.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

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
    /// `trainable`: names what is tuned, so that nothing else goes on with its search; `function`:
    /// its address, if it is a plain function, of which many have one type. Throws ConfigError for
    /// options that cannot work.
    TunerCore(TunerOptions options, std::string trainable, const void* function = nullptr);

    [[nodiscard]] const TunerOptions& options() const noexcept { return options_; }
    /// What runs again if fit() goes on with a search.
    void set_restore(tune::RestoreOptions restore) noexcept { restore_ = restore; }

    /// See Tuner.
    ResultGrid fit(const tune::TrialFunction& function);

    /// The same over a trainer with these options: each trial is a run.
    ResultGrid fit(const TrainerOptions& trainer);
    /// Whether this process was started for a trial of the search that is to begin now.
    [[nodiscard]] static bool is_in_trial();
    /// For such a process, and its ranks: lives in `train`, to which it gives the trainer's options
    /// for a trial, and others that follow. `begin` is called before each trial. The process that
    /// drives the ranks leaves how that has ended.
    [[noreturn]] void
    drive_trials(const TrainerOptions& trainer, const std::function<void()>& begin,
                 const std::function<void(const TrainerOptions&, FurtherRuns&)>& train) const;
    [[nodiscard]] ResultGrid get_results() const;
    [[nodiscard]] static bool can_restore(const std::filesystem::path& directory);
    /// Options that lead to the search in a directory. Throws StorageError [RT-U106] where there is
    /// none.
    [[nodiscard]] static TunerOptions restored(const std::filesystem::path& directory,
                                               TunerOptions options);

private:
    [[nodiscard]] tune::SearchPlan plan() const;
    [[nodiscard]] tune::SearchPlan plan_of_runs(const TrainerOptions& trainer) const;
    [[nodiscard]] tune::Goal goal() const;
    [[nodiscard]] RunConfig run_of_trials(const RunConfig& trainer) const;
    [[nodiscard]] std::size_t cores_of_run(const TrainerOptions& trainer,
                                           const Config& config) const;
    [[nodiscard]] TrainerOptions
    trial_options(const TrainerOptions& trainer, const tune::TrialTask& task,
                  const std::shared_ptr<tune::internal::SearchLink>& link) const;
    /// What a search does, on whichever rank.
    struct Work {
        std::function<tune::SearchPlan()> plan; ///< called by who leads the search
        tune::Resources each{};
        /// Cores that a trial has for its own, if there are enough; empty: none has.
        std::function<std::size_t(const Config&)> cores_of{};
        tune::TrialFunction function;
        std::function<tune::FunctionRunner::Files(const tune::Assignment&)> files{};
    };
    ResultGrid fit(const std::function<Work(int fit)>& work);
    ResultGrid search(const Work& work, tune::Slots* slots);
    ResultGrid search_among_ranks(const Work& work);
    ResultGrid serve(const Work& work, const std::string& address, int rank);

    TunerOptions options_;
    std::string trainable_;
    const void* function_ = nullptr;
    std::filesystem::path directory_; ///< of the search
    tune::RestoreOptions restore_{};
};

} // namespace rtrain::detail

#ifndef RTRAIN_COMPILED
#include <rtrain/tune/tuner_core_definitions.hpp>
#endif
