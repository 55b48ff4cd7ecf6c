// SPDX-License-Identifier: Apache-2.0
/// @file
/// Replica: what the creators of a CreatorTrainer have made on one rank.
#pragma once

#include <rtrain/creators/any_replica.hpp>
#include <rtrain/creators/data.hpp>
#include <rtrain/creators/options.hpp>
#include <rtrain/model/data_parallel.hpp>

#include <c10/core/GradMode.h>
#include <torch/nn/modules/loss.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace rtrain::detail {

template <class T>
inline constexpr bool is_creator = !std::same_as<T, NoCreator>;

/// A model as creators and users hold it: by value it would be copied.
template <class M>
[[nodiscard]] auto held(M model) {
    if constexpr (std::derived_from<M, torch::nn::Module>) {
        return module_of(std::move(model));
    } else {
        return model;
    }
}

/// Throws ConfigError [RT-F32] for a null pointer.
template <class Model>
[[nodiscard]] Model required(Model model) {
    bool is_null = false;
    if constexpr (requires { model.is_empty(); }) {
        is_null = model.is_empty();
    } else {
        is_null = model == nullptr;
    }
    if (is_null) {
        throw ConfigError("RT-F32", "model_creator returned no module");
    }
    return model;
}

template <class Options>
using ModelOf =
    decltype(held(std::declval<const Options&>().model_creator(std::declval<const Config&>())));

/// Returns the loss and the optimizer.
template <class Options, class Model>
[[nodiscard]] auto make_optimizer(const Options& options, Model& model) {
    const auto with_loss = [&](auto optimizer) {
        if constexpr (is_creator<decltype(options.loss_creator)>) {
            return std::pair(options.loss_creator(options.config), std::move(optimizer));
        } else {
            return std::pair(torch::nn::MSELoss(), std::move(optimizer));
        }
    };
    if constexpr (!is_creator<decltype(options.optimizer_creator)>) {
        constexpr double default_rate = 1e-4;
        return with_loss(torch::optim::SGD(model->parameters(), default_rate));
    } else {
        auto made = options.optimizer_creator(model, options.config);
        if constexpr (std::derived_from<decltype(made), torch::optim::Optimizer>) {
            return with_loss(std::move(made));
        } else {
            static_assert(!is_creator<decltype(options.loss_creator)>,
                          "rtrain: optimizer_creator and loss_creator both return a loss [RT-F42]");
            return std::pair(std::get<0>(std::move(made)), std::get<1>(std::move(made)));
        }
    }
}

template <class Options, class Optimizer>
[[nodiscard]] auto make_scheduler(const Options& options, Optimizer& optimizer) {
    if constexpr (is_creator<decltype(options.scheduler_creator)>) {
        return options.scheduler_creator(optimizer, options.config);
    } else {
        return NoCreator{};
    }
}

template <class W, class Options>
class Replica final : public AnyReplica {
    using Model = ModelOf<Options>;
    using Made = decltype(make_optimizer(std::declval<const Options&>(), std::declval<Model&>()));
    using Optimizer = typename Made::second_type;
    using Scheduler =
        decltype(make_scheduler(std::declval<const Options&>(), std::declval<Optimizer&>()));
    using Clock = std::chrono::steady_clock;
    static constexpr bool has_scheduler = is_creator<Scheduler>;
    static constexpr bool is_plateau =
        std::derived_from<Scheduler, torch::optim::ReduceLROnPlateauScheduler>;

public:
    /// References outlive this object.
    Replica(W& worker, const Options& options, const CreatorSettings& settings)
        : worker_(worker), options_(options), settings_(settings),
          model_(required(held(options.model_creator(options.config)))),
          prepared_(worker.prepare(model_)), made_(make_optimizer(options, model_)),
          scheduler_(make_scheduler(options, made_.second)), data_(make_data(worker, options)) {
        if (is_plateau && settings.scheduler_step_freq != SchedulerStep::manual) {
            throw ConfigError("RT-F32",
                              "a schedule that follows a metric needs scheduler_step_freq "
                              "= SchedulerStep::manual, and update_scheduler(metric)");
        }
        if (worker.rank() == 0) {
            warn_of_batch_size(settings.batch_size, worker.size());
        }
    }

    void add_to(State& state) override {
        add_model_to(state);
        state.add("optimizer", made_.second);
        if constexpr (has_scheduler) {
            state.add("scheduler", scheduler_);
        }
    }
    void add_model_to(State& state) override { state.add("model", prepared_); }

    void use_data(const std::string& train, const std::string& validation) override {
        const std::int64_t rows = batch_size_of_rank(settings_.batch_size, worker_.size());
        train_ = nullptr; // its position is free from here on
        validation_ = nullptr;
        train_ = loop_of(data_.first, "train", train, {.size = rows, .shuffle = options_.shuffle});
        validation_ =
            loop_of(data_.second, "validation", validation, {.size = rows, .each_row_once = true});
    }

    void train_epoch(BatchSums& sums, std::optional<std::int64_t> num_steps) override {
        const std::int64_t end = sums.batches + num_steps.value_or(0);
        auto begin = Clock::now();
        train_([&](const at::Tensor& input, const at::Tensor& target) {
            begin = step(sums, input, target, begin);
            return !num_steps || sums.batches < end;
        });
    }

    void end_epoch() override { step_schedule(SchedulerStep::epoch); }

    void validate(BatchSums& sums) override {
        const c10::NoGradGuard no_grad;
        prepared_->eval();
        validation_([&](const at::Tensor& input, const at::Tensor& target) {
            const at::Tensor output = prepared_(input);
            add(sums, target.size(0), made_.first(output, target));
            if (output.dim() == 2 && target.dim() == 1 && !target.is_floating_point()) {
                sums.has_classes = true;
                sums.correct.add((output.argmax(1) == target).sum());
            }
            return true;
        });
        prepared_->train();
    }

    [[nodiscard]] bool can_validate() const override { return validation_ != nullptr; }

    [[nodiscard]] bool step_schedule([[maybe_unused]] std::optional<double> metric) override {
        if constexpr (is_plateau) {
            if (metric) {
                scheduler_.step(*metric);
            }
            return metric.has_value();
        } else if constexpr (has_scheduler) {
            const bool is_manual = settings_.scheduler_step_freq == SchedulerStep::manual;
            step_schedule(SchedulerStep::manual);
            return is_manual;
        } else {
            return false;
        }
    }

    [[nodiscard]] double learning_rate() const override { return rate_; }

private:
    [[nodiscard]] static double seconds(Clock::duration time) {
        return std::chrono::duration<double>(time).count();
    }

    static void add(BatchSums& sums, std::int64_t rows, const at::Tensor& loss) {
        ++sums.batches;
        sums.rows += rows;
        sums.loss.add(loss, rows);
    }

    /// `begin`: when the batch was asked for. Returns the end of the step.
    Clock::time_point step(BatchSums& sums, const at::Tensor& input, const at::Tensor& target,
                           Clock::time_point begin) {
        Optimizer& optimizer = made_.second;
        const auto got = Clock::now();
        optimizer.zero_grad();
        const at::Tensor loss = made_.first(prepared_(input), target);
        const auto forward = Clock::now();
        loss.backward();
        const auto backward = Clock::now();
        optimizer.step();
        rate_ = optimizer.param_groups().front().options().get_lr();
        step_schedule(SchedulerStep::batch);
        add(sums, target.size(0), loss);
        const auto end = Clock::now();
        sums.data += seconds(got - begin);
        sums.forward += seconds(forward - got);
        sums.backward += seconds(backward - forward);
        sums.step += seconds(end - backward);
        return end;
    }

    void step_schedule([[maybe_unused]] SchedulerStep when) {
        if constexpr (has_scheduler && !is_plateau) {
            if (settings_.scheduler_step_freq == when) {
                scheduler_.step();
            }
        }
    }

    /// `made`: by data_creator; `file`: replaces it, unless empty. Null without data.
    template <class T>
    [[nodiscard]] PairLoop loop_of(const T& made, const std::string& name, const std::string& file,
                                   const data::BatchOptions& options) {
        if (!file.empty()) { // its rows have their own position
            return loop_over(worker_.dataset_shard(name + " of " + file, read_rows(file)), options,
                             settings_);
        }
        if constexpr (std::same_as<T, std::nullopt_t>) {
            return nullptr;
        } else if constexpr (std::same_as<T, data::Dataset>) {
            return loop_over(worker_.dataset_shard(name, made), options, settings_);
        } else {
            return [loader = made](const UsePair& use) {
                for (auto& batch : *loader) {
                    if (!use(batch.data, batch.target)) {
                        break;
                    }
                }
            };
        }
    }

    /// A data set, a shared pointer to a prepared loader, or std::nullopt.
    template <class T>
    [[nodiscard]] static auto prepared(W& worker, T made) {
        if constexpr (std::same_as<T, std::nullopt_t>) {
            return made;
        } else if constexpr (IsDataset<T>) {
            return dataset_of(std::move(made));
        } else {
            using Loader = decltype(worker.prepare(std::move(made)));
            return std::make_shared<Loader>(worker.prepare(std::move(made)));
        }
    }
    [[nodiscard]] static auto make_data(W& worker, const Options& options) {
        auto parts = in_two_parts(options.data_creator(options.config));
        return std::pair(prepared(worker, std::move(parts.first)),
                         prepared(worker, std::move(parts.second)));
    }

    W& worker_;
    const Options& options_;
    const CreatorSettings& settings_;
    Model model_;
    decltype(std::declval<W&>().prepare(std::declval<Model>())) prepared_;
    Made made_; ///< loss and optimizer
    Scheduler scheduler_;
    decltype(make_data(std::declval<W&>(), std::declval<const Options&>())) data_;
    PairLoop train_;
    PairLoop validation_;
    double rate_ = 0;
};

} // namespace rtrain::detail
