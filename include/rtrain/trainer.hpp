// SPDX-License-Identifier: Apache-2.0
/// @file
/// rtrain: distributed training for C++. The one header that users include.
///
/// @code
/// rtrain::Trainer<> trainer{{.config = {{"lr", 1e-3}}, .scaling = {.num_workers = 2}}};
/// rtrain::Result result = trainer.fit([](auto& worker, const rtrain::Config& config) { ... });
/// @endcode
#pragma once

#include <rtrain/backend/local.hpp>
#include <rtrain/backend/mpi.hpp>
#include <rtrain/backend/policy.hpp>
#include <rtrain/backend/the_backend.hpp>
#include <rtrain/base/compiled_for.hpp>
#include <rtrain/base/type_name.hpp>
#include <rtrain/checkpoint/policy/any_policy.hpp>
#include <rtrain/checkpoint/policy/sharded.hpp>
#include <rtrain/checkpoint/policy/sync.hpp>
#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/order/permuted.hpp>
#include <rtrain/data/order/sharded.hpp>
#include <rtrain/data/order/streaming.hpp>
#include <rtrain/data/readers/idx.hpp>
#include <rtrain/data/torch_data.hpp>
#include <rtrain/fwd.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/process/os/environment.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/state/state.hpp>
#include <rtrain/track/files/json_lines.hpp>
#include <rtrain/track/tensorboard/tensorboard.hpp>
#include <rtrain/train/train_function.hpp>
#include <rtrain/train/trainer_core.hpp>
#include <rtrain/train/worker.hpp>
#include <rtrain/version.hpp>

#include <concepts>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

namespace rtrain {

/// Trains a function on all ranks of a backend `B`, with data split by `D` and states saved by `C`.
///
/// Under mpirun or srun, every rank calls fit() and gets the Result. A program started alone, with
/// a backend that can be launched, becomes the driver: it starts mpirun on itself and waits; only
/// the driver continues after fit().
template <Backend B, DataPolicy D, CheckpointPolicy C>
class Trainer<B, D, C> {
public:
    /// Throws ConfigError for invalid options.
    explicit Trainer(TrainerOptions options) requires std::default_initializable<B> &&
        std::default_initializable<D> && std::default_initializable<C>
        : Trainer(std::move(options), B{}) {}
    Trainer(TrainerOptions options, B backend, D data = {}, C checkpoint = {})
        : backend_(std::make_shared<B>(std::move(backend))), ranks_(detail::any_backend(backend_)),
          data_(std::move(data)), core_(detail::TrainerCore::begin_session(), std::move(options),
                                        ranks_, checkpoint::any_policy(std::move(checkpoint))) {
        static_cast<void>(has_session);
    }

    using WorkerType = Worker<B, D, C>; ///< the first argument of the function passed to fit()

    /// True if restore() finds a run in this directory: a path, a URI, or a path in `filesystem`.
    [[nodiscard]] static bool
    can_restore(const std::filesystem::path& run_directory,
                const std::optional<storage::AnyFilesystem>& filesystem = std::nullopt) {
        return detail::TrainerCore::can_restore(run_directory, filesystem);
    }

    /// Returns a trainer that resumes the run in a directory, which may have been moved. Each field
    /// unset in `options` keeps the run's value; a value that equals its default counts as unset.
    /// Pass data sets again, under the same names (ConfigError RT-C18), and functions too. Throws
    /// StorageError [RT-S6] if the directory contains no run.
    ///
    /// @code
    /// auto trainer = rtrain::Trainer<>::restore("results/fashion-mnist", {{.datasets = data}});
    /// @endcode
    [[nodiscard]] static Trainer restore(const std::filesystem::path& run_directory,
                                         std::optional<TrainerOptions> options = std::nullopt,
                                         const std::optional<storage::AnyFilesystem>& filesystem =
                                             std::nullopt) requires std::default_initializable<B> &&
        std::default_initializable<D> && std::default_initializable<C> {
        return Trainer(
            detail::TrainerCore::restored_options(run_directory, std::move(options), filesystem));
    }

    /// The options as passed, or as restored.
    [[nodiscard]] const TrainerOptions& options() const noexcept { return core_.options(); }

    /// Returns the same trainer with different options: it shares backend and checkpoint policy, so
    /// only one of both may train at a time. Throws ConfigError for invalid options.
    [[nodiscard]] Trainer with(TrainerOptions options) const requires std::copy_constructible<D> {
        return Trainer(*this, std::move(options));
    }

    /// Runs `train_function(worker)` or `train_function(worker, config)` on every rank. Throws
    /// TrainingFailedError [RT-T1] naming the ranks on which it threw, LaunchError if ranks died,
    /// and errors before training; the same on all ranks. ConfigError [RT-C23] while another call
    /// trains in this process, [RT-C167, RT-C168] if the config does not match the function's
    /// struct.
    template <class F>
    Result fit(F&& train_function) {
        return fit_each(train_function, nullptr);
    }

    /// For a Tuner: the same, with further runs in the same ranks.
    template <class F>
    Result fit_each(F& train_function, const detail::FurtherRuns* further) {
        static_assert(TrainFunction<F, WorkerType>,
                      "rtrain: TrainFunction not met: fit() takes a function that can be called as "
                      "f(worker) or f(worker, config), with `auto& worker` and `const "
                      "rtrain::Config& config` or a described struct [RT-F1]");
        if constexpr (TrainFunction<F, WorkerType>) {
            TrainerOptions options = core_.options();
            options.config = detail::config_for<F, WorkerType>(options.config);
            detail::TrainerCore core = core_.with(std::move(options));
            return core.fit(
                [&](Run& run) {
                    WorkerType worker(backend_, ranks_, data_, run, core.options());
                    detail::call_with_config(train_function, worker, core.options().config);
                },
                detail::function_type_name<F>(), further);
        }
    }

private:
    Trainer(const Trainer& other, TrainerOptions options)
        : backend_(other.backend_), ranks_(other.ranks_), data_(other.data_),
          core_(other.core_.with(std::move(options))) {}

    /// Runs before main() in programs that use a trainer: in a launched rank, main() prints nothing
    /// and reads the driver's input.
    static inline const bool has_session = (detail::TrainerCore::begin_session(), true);

    std::shared_ptr<B> backend_;
    std::shared_ptr<detail::AnyBackend> ranks_;
    D data_;
    detail::TrainerCore core_;
};

} // namespace rtrain
