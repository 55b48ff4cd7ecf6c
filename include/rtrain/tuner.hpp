// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tuner: searches the best configuration of a function, a class or a trainer. Include it in
/// programs that tune, in addition to rtrain/trainer.hpp. Guide: docs/tune.md.
///
/// @code
/// rtrain::Tuner tuner{objective, rtrain::TunerOptions{
///     .param_space = {{"lr", rtrain::tune::loguniform(1e-4, 1e-1)}},
///     .tune = {.metric = "loss", .mode = "min", .num_samples = 50}}};
/// const auto best = tuner.fit().get_best_result();
/// @endcode
#pragma once

#include <rtrain/base/type_name.hpp>
#include <rtrain/config/typed_function.hpp>
#include <rtrain/program_search/search.hpp>
#include <rtrain/trainer.hpp>
#include <rtrain/tune/options.hpp>
#include <rtrain/tune/record/result_grid.hpp>
#include <rtrain/tune/resources/resources.hpp>
#include <rtrain/tune/threads/class_trainable.hpp>
#include <rtrain/tune/threads/trial.hpp>
#include <rtrain/tune/tuner_core.hpp>

#include <concepts>
#include <filesystem>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace rtrain {

/// A function that Tuner accepts: `double f(tune::Trial&, const Config&)`, or with a described
/// struct instead of Config.
template <class F>
concept TrialObjective = requires(F& function, tune::Trial& trial, const Config& config) {
    requires std::invocable<F&, tune::Trial&, const Config&> ||
        detail::TypedFunction<F, tune::Trial>;
    { detail::call_with_config(function, trial, config) } -> std::convertible_to<double>;
};

namespace tune {

/// Names a class for a Tuner: `Tuner{tune::trainable<Model>, options}`.
template <ClassTrainable T>
struct Trainable {
    using Type = T; ///< the class
};
/// The first argument of Tuner for a class.
template <ClassTrainable T>
inline constexpr Trainable<T> trainable{};

} // namespace tune

/// A trainer that has its training function: XGBoostTrainer, LightGBMTrainer.
template <class T>
concept CompleteTrainer = requires(const T& trainer) {
    typename T::Runner;
    typename T::Function;
    { trainer.runner() } -> std::convertible_to<typename T::Runner>;
    { trainer.function() } -> std::convertible_to<typename T::Function>;
};

/// A trainer that runs a program: ProgramTrainer.
template <class T>
concept RunsProgram = requires(const T& trainer) {
    { trainer.options() } -> std::same_as<const ProgramOptions&>;
};

/// A search over a plain function, whose trials run in threads of this process, or over a class. A
/// search of the same name and storage path resumes, as a run does.
///
/// Under mpirun or srun, all ranks call fit(): rank 0 leads, each rank runs one trial at a time,
/// and all get the same ResultGrid, or the same exception.
template <class... What>
class Tuner;

template <class F>
class Tuner<F> : detail::TunerCore {
public:
    /// Throws ConfigError for invalid options.
    Tuner(F function, TunerOptions options)
        : TunerCore(begin_session(), detail::without_datasets(std::move(options)),
                    detail::type_name<F>(), detail::config_for<F, tune::Trial>,
                    address_of(function)),
          function_(std::move(function)) {
        static_assert(TrialObjective<F>,
                      "rtrain: Tuner takes a function that can be called as f(trial, config), with "
                      "`rtrain::tune::Trial& trial` and `const rtrain::Config& config` or a "
                      "described struct, and returns a double [RT-U111]");
    }

    /// Returns a Tuner that resumes the search in a directory, which may have been moved. Pass the
    /// options of that search, except for name and path. Throws StorageError [RT-U106] if it
    /// contains no search; fit() throws ConfigError [RT-U107] for a different function or data
    /// sets.
    [[nodiscard]] static Tuner restore(const std::filesystem::path& directory, F function,
                                       TunerOptions options, tune::RestoreOptions which = {}) {
        Tuner tuner(std::move(function),
                    detail::TunerCore::restored(directory, std::move(options)));
        tuner.set_restore(which);
        return tuner;
    }
    using TunerCore::can_restore;

    /// Runs the search. A trial that throws fails without affecting others. Throws errors of the
    /// search itself: ConfigError [RT-U101] for a metric that is not reported,
    /// [RT-U103], [RT-U104], [RT-U107], [RT-U110], StorageError [RT-S7], [RT-U100], [RT-U106],
    /// LaunchError [RT-U114].
    ResultGrid fit() {
        return TunerCore::fit([this](tune::Trial& trial, const Config& config) {
            return std::optional<double>(detail::call_with_config(function_, trial, config));
        });
    }

    /// The results of the search so far.
    using TunerCore::get_results;

private:
    static const void* address_of(const F& function) {
        if constexpr (std::is_pointer_v<F>) {
            return reinterpret_cast<const void*>(function);
        } else {
            return nullptr;
        }
    }

    F function_;
};

template <tune::ClassTrainable T>
class Tuner<tune::Trainable<T>> : detail::TunerCore {
public:
    Tuner(tune::Trainable<T> /*trainable*/, TunerOptions options)
        : TunerCore(begin_session(), detail::without_datasets(std::move(options)),
                    detail::type_name<T>(), [](const Config& config) { return config; }) {}

    /// Same as for a function.
    [[nodiscard]] static Tuner restore(const std::filesystem::path& directory,
                                       tune::Trainable<T> trainable, TunerOptions options,
                                       tune::RestoreOptions which = {}) {
        Tuner tuner(trainable, detail::TunerCore::restored(directory, std::move(options)));
        tuner.set_restore(which);
        return tuner;
    }
    using TunerCore::can_restore;

    ResultGrid fit() {
        return TunerCore::fit(tune::function_of_class<T>(options().run.checkpoint.frequency));
    }
    using TunerCore::get_results;
};

/// A search over a trainer: each trial is a run with options that the trial's configuration changes
/// (tune/processes/trial_task.hpp), on separate ranks.
template <Backend B, DataPolicy D, CheckpointPolicy C, class F>
class Tuner<Trainer<B, D, C>, F> : detail::TunerCore {
public:
    /// `function`: as for Trainer::fit().
    Tuner(Trainer<B, D, C> trainer, F function, TunerOptions options)
        : TunerCore(begin_session(), std::move(options), detail::type_name<F>(),
                    detail::config_for<F, typename Trainer<B, D, C>::WorkerType>),
          trainer_(std::move(trainer)), function_(std::move(function)) {
        static_assert(TrainFunction<F, typename Trainer<B, D, C>::WorkerType>,
                      "rtrain: TrainFunction not met: a Tuner of a trainer takes a function that "
                      "can be called as f(worker) or f(worker, config), with `auto& worker` and "
                      "`const rtrain::Config& config` or a described struct [RT-U113]");
    }

    /// Its space has the options of its training: for boosting "params", a nested space, and
    /// "num_boost_round".
    template <CompleteTrainer T>
    Tuner(const T& trainer, TunerOptions options)
        : Tuner(trainer.runner(), trainer.function(), std::move(options)) {}

    /// Same as for a plain function.
    [[nodiscard]] static Tuner restore(const std::filesystem::path& directory,
                                       Trainer<B, D, C> trainer, F function, TunerOptions options,
                                       tune::RestoreOptions which = {}) {
        Tuner tuner(std::move(trainer), std::move(function),
                    detail::TunerCore::restored(directory, std::move(options)));
        tuner.set_restore(which);
        return tuner;
    }
    template <CompleteTrainer T>
    [[nodiscard]] static Tuner restore(const std::filesystem::path& directory, const T& trainer,
                                       TunerOptions options, tune::RestoreOptions which = {}) {
        return restore(directory, trainer.runner(), trainer.function(), std::move(options), which);
    }
    using TunerCore::can_restore;

    /// Counts as one fit() call of the program; the runs of its trials count as none.
    ResultGrid fit() {
        if (is_in_trial()) {
            std::optional<F> copy;
            const auto begin = [&] { // each trial has its own function
                if constexpr (std::copy_constructible<F>) {
                    copy.emplace(function_);
                }
            };
            drive_trials(trainer_.options(), begin,
                         [&](const TrainerOptions& first, const detail::FurtherRuns& further) {
                             auto trainer = trainer_.with(first);
                             (void)trainer.fit_each(copy ? *copy : function_, &further);
                         });
        }
        return TunerCore::fit(trainer_.options());
    }
    using TunerCore::get_results;

private:
    Trainer<B, D, C> trainer_;
    F function_;
};

/// A search over a program, such as a script of PyTorch: each trial is a run of it, with the
/// trial's configuration in RTRAIN_CONFIG. Include rtrain/program/program_trainer.hpp, too.
template <RunsProgram T>
class Tuner<T> : detail::ProgramSearch {
public:
    Tuner(T trainer, TunerOptions options)
        : ProgramSearch(std::move(options), trainer.options()), trainer_(std::move(trainer)) {}

    /// Same as for a plain function.
    [[nodiscard]] static Tuner restore(const std::filesystem::path& directory, T trainer,
                                       TunerOptions options, tune::RestoreOptions which = {}) {
        Tuner tuner(std::move(trainer), detail::TunerCore::restored(directory, std::move(options)));
        tuner.set_restore(which);
        return tuner;
    }
    using TunerCore::can_restore;

    /// Same as for a trainer. Throws ConfigError [RT-E5] to [RT-E13], [RT-E66], too.
    ResultGrid fit() { return ProgramSearch::fit(trainer_.options()); }
    using TunerCore::get_results;

private:
    T trainer_;
};

template <class F>
Tuner(F, TunerOptions) -> Tuner<F>;
template <CompleteTrainer T>
Tuner(T, TunerOptions) -> Tuner<typename T::Runner, typename T::Function>;
template <Backend B, DataPolicy D, CheckpointPolicy C, class F>
Tuner(Trainer<B, D, C>, F, TunerOptions) -> Tuner<Trainer<B, D, C>, F>;

} // namespace rtrain
