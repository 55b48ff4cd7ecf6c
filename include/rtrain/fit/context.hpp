// SPDX-License-Identifier: Apache-2.0
/// @file
/// FitContext: what training and evaluation by Fit have in common: the prepared module, its
/// callbacks and their hooks, evaluation.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/fit/evaluation_mode.hpp>
#include <rtrain/fit/hooks.hpp>
#include <rtrain/fit/logged.hpp>
#include <rtrain/fit/module.hpp>
#include <rtrain/fit/options.hpp>
#include <rtrain/fit/plan.hpp>
#include <rtrain/fit/step.hpp>
#include <rtrain/state/state_io.hpp>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace rtrain::detail {

/// The hooks around an evaluation.
struct ValidationHooks {
    using Start = on_validation_start_hook;
    using End = on_validation_end_hook;
    using EpochStart = on_validation_epoch_start_hook;
    using EpochEnd = on_validation_epoch_end_hook;
    using BatchStart = on_validation_batch_start_hook;
    using BatchEnd = on_validation_batch_end_hook;
};
struct TestHooks {
    using Start = on_test_start_hook;
    using End = on_test_end_hook;
    using EpochStart = on_test_epoch_start_hook;
    using EpochEnd = on_test_epoch_end_hook;
    using BatchStart = on_test_batch_start_hook;
    using BatchEnd = on_test_batch_end_hook;
};
struct PredictHooks {
    using Start = on_predict_start_hook;
    using End = on_predict_end_hook;
    using EpochStart = on_predict_epoch_start_hook;
    using EpochEnd = on_predict_epoch_end_hook;
    using BatchStart = on_predict_batch_start_hook;
    using BatchEnd = on_predict_batch_end_hook;
};

template <class M, class W, class... Callbacks>
class FitContext : public FitActions {
public:
    using Make = std::function<std::shared_ptr<M>(const ModuleConfig<M>&)>;
    using Model = decltype(std::declval<W&>().prepare(std::declval<std::shared_ptr<M>>()));

    /// A Fit's members, and the configuration of its run.
    struct Parts {
        const ModuleConfig<M>& config;
        const FitOptions& options;
        const Make& make;
        std::tuple<Callbacks...> callbacks;
    };

    FitContext(W& worker, Parts parts)
        : worker_(worker), options_(parts.options), callbacks_(std::move(parts.callbacks)),
          model_(prepared(worker, parts.config, parts.options, parts.make)) {
        std::apply([&](auto&... each) { (bind(each), ...); }, callbacks_);
    }
    FitContext(const FitContext&) = delete;
    FitContext& operator=(const FitContext&) = delete;

    /// Calls a hook of the callbacks, then of the module.
    template <class Hook, class... A>
    void call(A&... arguments) {
        std::apply([&](auto&... each) { (call_of<Hook>(each, arguments...), ...); }, callbacks_);
        if constexpr (has_hook<M, Hook>) {
            Hook::call(*model_, arguments...);
        }
    }
    /// Runs `run`, and calls on_exception before what it throws leaves.
    template <class Run>
    void with_exception_hooks(Step& step, const Run& run) {
        try {
            run();
        } catch (const std::exception& error) {
            call<on_exception_hook>(error, step);
            throw;
        }
    }
    struct Evaluation {
        Step& step;
        Stage stage;
        Logged& logged;
        std::int64_t limit = 0; ///< of batches; 0: all
    };
    /// Evaluates on batches, each by `run(batch)`.
    template <class Hooks, class Batches, class Run>
    void evaluate(const Evaluation& what, Batches&& batches, const Run& run) {
        auto& [step, stage, logged, limit] = what;
        const EvaluationMode evaluation(*model_);
        const Scope scope(step, stage, logged);
        call<typename Hooks::Start>(step);
        call<typename Hooks::EpochStart>(step);
        for (const data::Batch& batch : batches) {
            if (limit > 0 && scope.batches() >= limit) {
                break;
            }
            scope.begin(batch);
            call<typename Hooks::BatchStart>(batch, step);
            run(batch);
            call<typename Hooks::BatchEnd>(batch, step);
            log_line(logged);
            scope.end_batch();
        }
        scope.end();
        call<typename Hooks::EpochEnd>(step);
        call<typename Hooks::End>(step);
    }
    /// Logs the values of a step.
    void log_line(Logged& logged) {
        if (const auto line = logged.take_line(); !line.empty()) {
            worker_.log(line);
        }
    }
    /// Runs a step of an evaluation, whose tensor is logged as "loss".
    template <class Run>
    void run_step(Step& step, const Run& run) {
        if constexpr (std::is_void_v<decltype(run())>) {
            model_.call(run);
        } else {
            step.log("loss", at::Tensor(model_.call(run)));
        }
    }

    void save_callbacks(StateWriter& out) {
        each_saved([&](auto& callback, const std::string& name) {
            StateWriter part = out.part(name);
            std::as_const(callback).save(part);
        });
    }
    /// Loads them, after on_load_checkpoint of the module and theirs.
    void load_callbacks(const StateReader& in) {
        const StateReader hooks = in.part("hooks");
        if constexpr (has_hook<M, on_load_checkpoint_hook>) {
            on_load_checkpoint_hook::call(*model_, hooks);
        }
        std::apply([&](auto&... each) { (call_of<on_load_checkpoint_hook>(each, hooks), ...); },
                   callbacks_);
        each_saved([&](auto& callback, const std::string& name) { callback.load(in.part(name)); });
    }

    void backward(const at::Tensor& /*loss*/) override { refuse(); }
    void zero_grad(std::size_t /*optimizer*/) override { refuse(); }
    void step(std::size_t /*optimizer*/) override { refuse(); }
    [[nodiscard]] torch::optim::Optimizer& optimizer(std::size_t /*number*/) override { refuse(); }
    [[nodiscard]] std::size_t optimizers() const override { return 0; }

protected:
    ~FitContext() = default;

    [[noreturn]] static void refuse() {
        throw ConfigError("RT-F17",
                          "step.backward(), zero_grad() and step() are for training_step of a "
                          "module with `static constexpr bool automatic_optimization = false`, and "
                          "step.optimizer() for training with that many optimizers; remove the "
                          "call");
    }

    W& worker_;
    const FitOptions& options_;
    std::tuple<Callbacks...> callbacks_;
    Model model_;

private:
    /// A step during an evaluation.
    class Scope {
    public:
        Scope(Step& step, Stage stage, Logged& logged)
            : step_(step), stage_(std::exchange(step.stage_, stage)),
              logged_(std::exchange(step.logged_, &logged)), rows_(step.rows_) {
            step.evaluated_ = 0;
        }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;
        ~Scope() {
            step_.stage_ = stage_;
            step_.logged_ = logged_;
            step_.rows_ = rows_;
        }
        [[nodiscard]] std::int64_t batches() const { return step_.evaluated_; }
        void begin(const data::Batch& batch) const {
            step_.rows_ = static_cast<double>(batch.size());
        }
        void end_batch() const { ++step_.evaluated_; }
        void end() const { step_.rows_ = 1; }

    private:
        Step& step_;
        Stage stage_;
        Logged* logged_;
        double rows_;
    };

    static Model prepared(W& worker, const ModuleConfig<M>& config, const FitOptions& options,
                          const Make& make) {
        if (options.seed) {
            worker.enable_reproducibility(*options.seed);
        }
        constexpr auto set = [](DataParallelOptions& parallel, const FitOptions& of) {
            if (of.precision != Precision::float32) {
                parallel.autocast = of.precision == Precision::bfloat16 ? at::kBFloat16 : at::kHalf;
            }
            if (of.last_window == LastWindow::carry) { // as with micro-batches
                parallel.weight_by_rows = false;
            }
        };
        if (const auto* const sharded = std::get_if<ShardedOptions>(&options.prepare)) {
            ShardedOptions with = *sharded;
            set(with.data_parallel, options);
            return worker.construct([&] { return make(config); }, with);
        }
        DataParallelOptions with = std::get<DataParallelOptions>(options.prepare);
        set(with, options);
        return worker.prepare(make(config), with);
    }

    template <class C>
    void bind(C& callback) {
        if constexpr (AveragesWeights<C>) {
            callback.bind(model_);
        }
    }
    template <class Hook, class C, class... A>
    void call_of(C& callback, A&... arguments) {
        if constexpr (has_hook<C, Hook, M>) {
            Hook::call(callback, *model_, arguments...);
        }
    }

    /// Calls `use(callback, name)` for each callback with save() and load().
    template <class Use>
    void each_saved(const Use& use) {
        std::apply(
            [&](auto&... each) {
                [[maybe_unused]] std::size_t number = 0;
                (use_saved(each, number++, use), ...);
            },
            callbacks_);
    }
    template <class C, class Use>
    static void use_saved(C& callback, std::size_t number, const Use& use) {
        if constexpr (SavedCallback<C>) {
            use(callback, "callback." + std::to_string(number));
        }
    }
};

} // namespace rtrain::detail
