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
#include <rtrain/checkpoint/sharded.hpp>
#include <rtrain/checkpoint/sync.hpp>
#include <rtrain/data/idx.hpp>
#include <rtrain/data/permuted.hpp>
#include <rtrain/data/sharded.hpp>
#include <rtrain/data/torch_data.hpp>
#include <rtrain/fwd.hpp>
#include <rtrain/launch/driver.hpp>
#include <rtrain/launch/helper.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/one_fit.hpp>
#include <rtrain/options.hpp>
#include <rtrain/preemption.hpp>
#include <rtrain/restore.hpp>
#include <rtrain/result.hpp>
#include <rtrain/run_directory.hpp>
#include <rtrain/state.hpp>
#include <rtrain/storage/lock.hpp>
#include <rtrain/train_function.hpp>
#include <rtrain/training.hpp>
#include <rtrain/version.hpp>
#include <rtrain/worker.hpp>

#include <chrono>
#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace rtrain {

/// Trains a function on all ranks of a backend `B`, with data split by `D` and states saved by `C`.
///
/// Under mpirun or srun, every rank calls fit() and gets the Result. A program started alone, with
/// a backend that can be launched, becomes the driver: it starts mpirun on itself, waits, and alone
/// goes on behind fit().
template <Backend B, DataPolicy D, CheckpointPolicy C>
class Trainer<B, D, C> {
public:
    /// Throws ConfigError for options that cannot work.
    explicit Trainer(TrainerOptions options) requires std::default_initializable<B> &&
        std::default_initializable<D> && std::default_initializable<C>
        : Trainer(std::move(options), B{}) {}
    Trainer(TrainerOptions options, B backend, D data = {}, C checkpoint = {})
        : options_(std::move(options)), backend_(std::make_shared<B>(std::move(backend))),
          data_(std::move(data)), checkpoint_(std::move(checkpoint)) {
        detail::check_options(options_);
    }

    using WorkerType = Worker<B, D, C>;

    /// Whether restore() finds a run in this directory: a path, a URI, or a path in `filesystem`.
    [[nodiscard]] static bool
    can_restore(const std::filesystem::path& run_directory,
                const std::optional<storage::AnyFilesystem>& filesystem = std::nullopt) {
        try {
            (void)detail::read_trainer(run_directory, filesystem);
            return true;
        } catch (const TransientStorageError&) {
            throw;
        } catch (const Error&) {
            return false;
        }
    }

    /// A trainer that goes on with the run in a directory, which may have been moved. What
    /// `options` leave unset is as it was, each field by itself; a value that equals its default
    /// counts as unset. Data sets have to be given again, under the same names (ConfigError
    /// RT-C18), and so do functions. Throws StorageError [RT-S6] where there is no run.
    ///
    /// @code
    /// auto trainer = rtrain::Trainer<>::restore("results/fashion-mnist", {{.datasets = data}});
    /// @endcode
    [[nodiscard]] static Trainer restore(const std::filesystem::path& run_directory,
                                         std::optional<TrainerOptions> options = std::nullopt,
                                         const std::optional<storage::AnyFilesystem>& filesystem =
                                             std::nullopt) requires std::default_initializable<B> &&
        std::default_initializable<D> && std::default_initializable<C> {
        return Trainer(detail::restored_options(run_directory, std::move(options), filesystem));
    }

    /// Runs `train_function(worker)` or `train_function(worker, config)` on every rank. Throws
    /// TrainingFailedError [RT-T1] naming the ranks on which it threw, LaunchError when ranks died,
    /// and what stopped the run before training; the same on all ranks. ConfigError [RT-C23] while
    /// another call trains in this process.
    template <class F>
    Result fit(F&& train_function) {
        static_assert(TrainFunction<F, WorkerType>,
                      "rtrain: TrainFunction not met: fit() takes a function that can be called as "
                      "f(worker) or f(worker, config), with `auto& worker` and `const "
                      "rtrain::Config& config` [RT-F1]");
        if constexpr (TrainFunction<F, WorkerType>) {
            detail::OneFit::require_none();
            launch::Session& session = launch::Session::current();
            const int fit = session.next_fit();
            const bool helper = launch::Helper::is_this_process();
            if (session.target() == fit) {
                helper ? serve_and_exit() : train_and_exit(fit, train_function);
            }
            if (const auto earlier = session.recorded(fit)) {
                return earlier->get(run_filesystem());
            }
            if (helper) {
                throw LaunchError("RT-L4", detail::concat("rank 0 has not recorded how fit() call "
                                                          "number ",
                                                          fit + 1, " of this program ended"));
            }
            if constexpr (requires { B::launched_ranks(); }) {
                if (!B::launched_ranks()) {
                    return driven(fit);
                }
            }
            return recorded(fit, train_function);
        }
    }

private:
    /// Where Result::path is, when it is not of this machine.
    [[nodiscard]] std::optional<storage::AnyFilesystem> run_filesystem() const {
        const auto root = detail::storage_root(options_.run);
        return root.filesystem.is_local() ? std::nullopt : std::optional(root.filesystem);
    }

    /// A restarted run must find its directory again, so the driver names it.
    [[nodiscard]] RunConfig named_run() const {
        RunConfig run = options_.run;
        if (run.name.empty()) {
            run.name = detail::generated_name();
        }
        return run;
    }

    Result driven(int fit) {
        try {
            return launched(fit);
        } catch (const std::bad_alloc&) {
            const LaunchError error("RT-L16", "the driver ran out of memory, and no rank lives "
                                              "any more; the same command goes on with the run");
            launch::Session::current().record(fit, launch::Ending::of(error));
            throw error;
        }
    }

    /// Has ranks train, and waits for them.
    Result launched(int fit) {
        RunConfig run = named_run();
        if constexpr (!requires { requires B::can_survive_deaths; }) {
            if (std::exchange(run.failure.keep_survivors, false)) {
                std::fprintf(stderr, "rtrain: keep_survivors has no effect: this program is not "
                                     "compiled for an MPI with ULFM, or its backend uses none\n");
            }
        }
        require_free(fit, run);
        const launch::Ending ending = launch::drive(fit, options_.config, options_.scaling, run);
        if (ending.code == PreemptionError::own_code) {
            end_preempted(ending.message);
        }
        return ending.get(run_filesystem());
    }

    /// Two drivers of one run: the second learns it before it has launched ranks. Those of a driver
    /// that was killed just now are given time to end.
    static void require_free(int fit, const RunConfig& run) {
        constexpr std::chrono::milliseconds patience{400};
        const storage::Location root = detail::storage_root(run);
        if (!root.filesystem.is_local()) {
            return;
        }
        try {
            storage::DirectoryLock::require_free(std::filesystem::path(root.path) / run.name,
                                                 patience);
        } catch (const StorageError& error) {
            launch::Session::current().record(fit, launch::Ending::of(error));
            throw;
        }
    }

    /// The same command goes on with the run.
    [[noreturn]] static void end_preempted(const std::string& message) {
        std::fprintf(stderr, "rtrain: %s\n", message.c_str());
        std::exit(preempted_exit_code);
    }

    /// Trains in this process; processes started for a later call learn how it ended.
    template <class F>
    Result recorded(int fit, F& train_function) {
        try {
            Result result = train(fit, train_function);
            launch::Session::current().record(fit, {.run = result.path});
            return result;
        } catch (const PreemptionError& error) {
            if (backend_->rank() == 0) {
                end_preempted(error.message());
            }
            std::exit(preempted_exit_code);
        } catch (const std::exception& error) {
            launch::Session::current().record(fit, launch::Ending::of(error));
            throw;
        }
    }

    /// What a helper does: it validates checkpoints until rank 0 ends it.
    [[noreturn]] void serve_and_exit() {
        const detail::OneFit serving;
        launch::Session::current().unmute();
        const auto validate = [this](const Checkpoint& checkpoint, const Config& task) {
            try {
                return options_.validation.function(checkpoint, task);
            } catch (const std::exception& error) {
                throw std::runtime_error(detail::text_of(error));
            }
        };
        launch::Helper::serve(validate, run_filesystem());
        std::fflush(nullptr);
        ::_exit(EXIT_SUCCESS);
    }

    /// What a rank launched by a driver does: it leaves word for the driver and ends.
    template <class F>
    [[noreturn]] void train_and_exit(int fit, F& train_function) {
        launch::Session& session = launch::Session::current();
        session.unmute();
        try {
            const Result result = train(fit, train_function);
            if (backend_->rank() == 0) {
                session.record(fit, {.run = result.path});
            }
            end_together();
        } catch (const TrainingFailedError& error) { // ranks have agreed on it, or on this:
            end_together(fit, error);
        } catch (const PreemptionError& error) {
            end_together(fit, error);
        } catch (const std::exception& error) {
            session.record(fit, launch::Ending::of(error));
            session.last_words(error);
            std::fflush(nullptr);
            ::_exit(EXIT_FAILURE); // others may wait for ever; mpirun ends them
        }
    }

    [[noreturn]] void end_together(int fit, const Error& error) {
        if (backend_->rank() == 0) {
            launch::Session::current().record(fit, launch::Ending::of(error));
        }
        end_together();
    }
    [[noreturn]] void end_together() {
        launch::Session::current().tell("done", {});
        std::exit(EXIT_SUCCESS);
    }

    template <class F>
    Result train(int fit, F& train_function) {
        const detail::OneFit training;
        const std::string& launched = launch::Session::current().run_name();
        return detail::Training<B, D, C>(backend_, data_, checkpoint_, options_,
                                         launched.empty() ? named_run().name : launched, fit)
            .run(train_function);
    }

    TrainerOptions options_;
    std::shared_ptr<B> backend_;
    D data_;
    C checkpoint_;
};

} // namespace rtrain
