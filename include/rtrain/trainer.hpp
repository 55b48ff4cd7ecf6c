// SPDX-License-Identifier: Apache-2.0
/// @file
/// rtrain: distributed training for C++. The one header that users include.
///
/// @code
/// rtrain::Trainer<> trainer{{.config = {{"lr", 1e-3}}, .scaling = {.num_workers = 2}}};
/// rtrain::Result result = trainer.fit([](auto& worker, const rtrain::Config& config) { ... });
/// @endcode
#pragma once

#include <rtrain/backend/collectives.hpp>
#include <rtrain/backend/local.hpp>
#include <rtrain/backend/mpi.hpp>
#include <rtrain/backend/outcome.hpp>
#include <rtrain/backend/policy.hpp>
#include <rtrain/checkpoint/sharded.hpp>
#include <rtrain/checkpoint/sync.hpp>
#include <rtrain/data/idx.hpp>
#include <rtrain/data/permuted.hpp>
#include <rtrain/data/sharded.hpp>
#include <rtrain/data/torch_data.hpp>
#include <rtrain/exception_text.hpp>
#include <rtrain/fwd.hpp>
#include <rtrain/json.hpp>
#include <rtrain/launch/driver.hpp>
#include <rtrain/launch/helper.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/options.hpp>
#include <rtrain/result.hpp>
#include <rtrain/run.hpp>
#include <rtrain/run_directory.hpp>
#include <rtrain/state.hpp>
#include <rtrain/train_function.hpp>
#include <rtrain/version.hpp>
#include <rtrain/worker.hpp>

#include <concepts>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sys/prctl.h>
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

    /// Runs `train_function(worker)` or `train_function(worker, config)` on every rank. Throws
    /// TrainingFailedError [RT-T1] naming the ranks on which it threw, LaunchError when ranks died,
    /// and what stopped the run before training; the same on all ranks.
    template <class F>
    Result fit(F&& train_function) {
        static_assert(TrainFunction<F, WorkerType>,
                      "rtrain: TrainFunction not met: fit() takes a function that can be called as "
                      "f(worker) or f(worker, config), with `auto& worker` and `const "
                      "rtrain::Config& config` [RT-F1]");
        if constexpr (TrainFunction<F, WorkerType>) {
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
                    return launch::drive(fit, options_.scaling, named_run()).get(run_filesystem());
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

    /// Trains in this process; processes started for a later call learn how it ended.
    template <class F>
    Result recorded(int fit, F& train_function) {
        try {
            Result result = train(fit, train_function);
            launch::Session::current().record(fit, {.run = result.path});
            return result;
        } catch (const std::exception& error) {
            launch::Session::current().record(fit, launch::Ending::of(error));
            throw;
        }
    }

    /// What a helper does: it validates checkpoints until rank 0 ends it.
    [[noreturn]] void serve_and_exit() {
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
        ::prctl(PR_SET_PDEATHSIG, SIGKILL); // mpirun gone: nobody is left to end this rank
        launch::Session& session = launch::Session::current();
        session.unmute();
        try {
            const Result result = train(fit, train_function);
            if (backend_->rank() == 0) {
                session.record(fit, {.run = result.path});
            }
            std::exit(EXIT_SUCCESS);
        } catch (const TrainingFailedError& error) { // ranks have agreed on it
            if (backend_->rank() == 0) {
                session.record(fit, launch::Ending::of(error));
            }
            std::exit(EXIT_SUCCESS);
        } catch (const std::exception& error) {
            session.record(fit, launch::Ending::of(error));
            std::fflush(nullptr);
            ::_exit(EXIT_FAILURE); // others may wait for ever; mpirun ends them
        }
    }

    template <class F>
    Result train(int fit, F& train_function) {
        if (options_.scaling.use_gpu && !requires(B & backend) { backend.device(); }) {
            throw ConfigError("RT-C5", "use_gpu is set, but this backend trains on CPUs");
        }
        if constexpr (requires { backend_->start(options_.scaling); }) {
            backend_->start(options_.scaling);
        }
        std::unique_ptr<Run<B, C>> run;
        Result result;
        std::exception_ptr refused;
        Outcome mine = outcome_of([&] {
            try {
                run =
                    std::make_unique<Run<B, C>>(*backend_, checkpoint_, options_, run_name(), fit);
            } catch (const PeerError&) {
                throw; // another rank knows better what is wrong
            } catch (...) {
                refused = std::current_exception();
                throw;
            }
        });
        if (run) {
            mine = outcome_of([&] {
                run_function(train_function, *run);
                run->close();
                // Read before any rank may go on and change the run's directory.
                const storage::Location& at = run->directory().location();
                result = Result::from_path(at.path, at.filesystem);
            });
        }
        const std::map<int, std::string> failures = exchange(mine);
        if (refused) {
            std::rethrow_exception(refused);
        }
        conclude(run.get(), failures);
        return result;
    }

    [[nodiscard]] std::string run_name() const {
        const std::string& given = launch::Session::current().run_name();
        return given.empty() ? named_run().name : given;
    }

    template <class F>
    void run_function(F& train_function, Run<B, C>& run) {
        WorkerType worker(backend_, data_, run, options_);
        if constexpr (std::invocable<F&, WorkerType&, const Config&>) {
            train_function(worker, std::as_const(options_.config));
        } else {
            train_function(worker);
        }
    }

    template <std::invocable Action>
    static Outcome outcome_of(Action&& action) {
        try {
            action();
            return {};
        } catch (const PeerError& error) {
            return {caused_by_another(error.code()) ? Outcome::Kind::interrupted
                                                    : Outcome::Kind::failed,
                    error.what()};
        } catch (const std::exception& error) {
            return {Outcome::Kind::failed, detail::text_of(error)};
        } catch (...) {
            return {Outcome::Kind::failed, "it threw something that is no std::exception"};
        }
    }

    /// Ranks learn how all of them ended; the messages of those that failed.
    std::map<int, std::string> exchange(const Outcome& mine) {
        std::map<int, std::string> failures;
        if constexpr (requires { backend_->finish(mine); }) {
            const std::vector<Outcome> outcomes = backend_->finish(mine);
            for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
                if (outcomes[rank].kind == Outcome::Kind::failed) {
                    failures[static_cast<int>(rank)] = outcomes[rank].message;
                }
            }
        } else if (mine.kind == Outcome::Kind::finished) {
            detail::barrier(*backend_);
        } else {
            failures[backend_->rank()] = mine.message;
        }
        return failures;
    }

    /// Throws when a rank has failed, and leaves word of it in the run's directory.
    void conclude(const Run<B, C>* run, const std::map<int, std::string>& failures) {
        if (failures.empty()) {
            return;
        }
        const TrainingFailedError error(describe(failures), failures);
        if (run != nullptr && (backend_->rank() == 0 || failures.contains(backend_->rank()))) {
            try {
                run->leave_error(error);
            } catch (const std::exception& second) { // the storage may be what has failed
                std::fprintf(stderr, "rtrain: %s was not written: %s\n", Result::error_file,
                             second.what());
            }
        }
        throw error;
    }

    /// Ranks that failed alike are named together.
    [[nodiscard]] std::string describe(const std::map<int, std::string>& failures) const {
        std::map<std::string, std::string> ranks_of;
        for (const auto& [rank, message] : failures) {
            std::string& ranks = ranks_of[message];
            ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
        }
        std::string text = "the training function failed:";
        for (const auto& [message, ranks] : ranks_of) {
            text += detail::concat("\n  rank ", ranks, " of ", backend_->size(), ": ", message);
        }
        return text;
    }

    TrainerOptions options_;
    std::shared_ptr<B> backend_;
    D data_;
    C checkpoint_;
};

} // namespace rtrain
