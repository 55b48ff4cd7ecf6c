// SPDX-License-Identifier: Apache-2.0
/// @file
/// CreatorRun: the run of a CreatorTrainer, which main()'s process and the ranks share.
#pragma once

#include <rtrain/backend/the_backend.hpp>
#include <rtrain/checkpoint/policy/any_policy.hpp>
#include <rtrain/checkpoint/policy/sync.hpp>
#include <rtrain/creators/call_service.hpp>
#include <rtrain/creators/options.hpp>
#include <rtrain/creators/replica.hpp>
#include <rtrain/creators/settings.hpp>
#include <rtrain/data/order/sharded.hpp>
#include <rtrain/run/options/options.hpp>
#include <rtrain/run/run.hpp>
#include <rtrain/train/trainer_core.hpp>
#include <rtrain/train/worker.hpp>

#include <concepts>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

namespace rtrain::detail {

template <class Options>
[[nodiscard]] CreatorSettings settings_of(const Options& options) {
    return {.batch_size = options.batch_size,
            .scheduler_step_freq = options.scheduler_step_freq,
            .saves_every_call =
                options.save_every_call.value_or(options.run.failure.max_failures != 0),
            .input_column = options.input_column,
            .target_column = options.target_column};
}

template <class Options>
class CreatorRun {
    using Given = std::remove_cvref_t<decltype(std::declval<const Options&>().backend)>;
    static constexpr bool names_backend = std::convertible_to<Given, std::string_view>;
    using B = typename std::conditional_t<names_backend, std::type_identity<backend::Mpi>,
                                          std::type_identity<Given>>::type;
    using WorkerType = Worker<B, data::Sharded, checkpoint::Sync>;

public:
    /// Throws ConfigError [RT-F32, RT-F38].
    explicit CreatorRun(Options options)
        : options_(std::move(options)),
          settings_(settings_of(options_)), trainer_{.config = options_.config,
                                                     .scaling = {.num_workers =
                                                                     options_.num_replicas,
                                                                 .use_gpu = options_.use_gpu,
                                                                 .threads_per_worker =
                                                                     options_.threads_per_worker},
                                                     .run = options_.run},
          backend_(std::make_shared<B>(make_backend(options_))), ranks_(any_backend(backend_)) {
        (void)batch_size_of_rank(options_.batch_size, options_.num_replicas.value_or(1));
    }

    [[nodiscard]] const Options& options() const noexcept { return options_; }
    [[nodiscard]] TrainerCore core() const {
        return {TrainerCore::begin_session(), trainer_, ranks_,
                checkpoint::any_policy(checkpoint::Sync{})};
    }

    /// Serves main()'s calls on this rank.
    void serve(Run& run, launch::CallSource& calls) const {
        WorkerType worker(backend_, ranks_, data::Sharded{}, run, trainer_);
        Replica<WorkerType, Options> replica(worker, options_, settings_);
        CallService({.worker = worker,
                     .ranks = *ranks_,
                     .replica = replica,
                     .calls = calls,
                     .settings = settings_,
                     .run = run.directory().location()})
            .serve();
    }

private:
    [[nodiscard]] static B make_backend(const Options& options) {
        if constexpr (names_backend) {
            require_mpi(options.backend);
            return B{};
        } else {
            return options.backend;
        }
    }

    Options options_;
    CreatorSettings settings_;
    TrainerOptions trainer_;
    std::shared_ptr<B> backend_;
    std::shared_ptr<AnyBackend> ranks_;
};

} // namespace rtrain::detail
