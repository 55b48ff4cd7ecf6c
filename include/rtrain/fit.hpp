// SPDX-License-Identifier: Apache-2.0
/// @file
/// Fit: trains a module with training_step, as Lightning's Trainer does. A functor for
/// Trainer::fit. Guide: docs/fit.md
///
/// @code
/// trainer.fit(rtrain::Fit<Classifier>{{.max_epochs = 10, .batch_size = 64}});
/// @endcode
#pragma once

#include <rtrain/base/compiled_for.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/fit/callbacks/accumulate_by.hpp>
#include <rtrain/fit/callbacks/averaged_weights.hpp>
#include <rtrain/fit/callbacks/freeze.hpp>
#include <rtrain/fit/callbacks/lr_monitor.hpp>
#include <rtrain/fit/callbacks/no_decay.hpp>
#include <rtrain/fit/callbacks/update_batch_norm.hpp>
#include <rtrain/fit/evaluation.hpp>
#include <rtrain/fit/loop.hpp>
#include <rtrain/fit/module.hpp>
#include <rtrain/fit/optimize.hpp>
#include <rtrain/fit/options.hpp>
#include <rtrain/schedule.hpp>

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace rtrain {

/// Trains a module `M` with callbacks; see FitModule. A trainer copies both for each attempt, so
/// one Fit may be used repeatedly.
template <class M, class... Callbacks>
class Fit {
public:
    /// The module's own struct, its member type Config, or rtrain::Config.
    using ModuleConfig = detail::ModuleConfig<M>;
    /// Creates the module in each attempt, on each rank.
    using Make = std::function<std::shared_ptr<M>(const ModuleConfig& config)>;

    /// Constructs the module from the config, or by default.
    explicit Fit(FitOptions options, Callbacks... callbacks)
        : Fit(std::move(options), Make(make_module), std::move(callbacks)...) {
        static_assert(std::constructible_from<M, const ModuleConfig&> ||
                          std::default_initializable<M>,
                      "rtrain: the module can be constructed neither from `const rtrain::Config&` "
                      "nor by default: pass a function that makes it, Fit<Module>{options, "
                      "[](const rtrain::Config& config) { return std::make_shared<Module>(...); }}"
                      ", or if its constructor takes your own struct, name that in the module: "
                      "`using Config = Hyper;` [RT-F8]");
    }
    /// Constructs callbacks by default.
    explicit Fit(FitOptions options) requires(sizeof...(Callbacks) > 0 &&
                                              (std::default_initializable<Callbacks> && ...))
        : Fit(std::move(options), Callbacks{}...) {}
    /// Constructs the module by a function.
    Fit(FitOptions options, Make make, Callbacks... callbacks)
        : options_(std::move(options)), make_(std::move(make)),
          callbacks_(std::move(callbacks)...) {
        static_cast<void>(detail::ExplainModule<M>{});
        static_cast<void>(std::tuple<detail::ExplainFitCallback<Callbacks, M>...>{});
    }

    /// Called by Trainer::fit on each rank. Throws ConfigError [RT-F10 to RT-F14], ModelError
    /// [RT-F15, RT-F16].
    template <class W>
    void operator()(W& worker, const ModuleConfig& config) const {
        if constexpr (FitModule<M>) {
            detail::FitLoop<M, W, Callbacks...>(worker, {config, options_, make_, callbacks_})
                .run();
        }
    }

    /// Returns a function for Trainer::fit that reports what validation_step logs, under "val/",
    /// for a checkpoint of this Fit. Give its run a different name.
    [[nodiscard]] auto validate(Checkpoint checkpoint) const {
        static_assert(detail::HasValidationStep<M>,
                      "rtrain: Fit::validate() needs `auto validation_step(const "
                      "rtrain::data::Batch& batch, rtrain::Step& step)` [RT-F9]");
        return [fit = *this, checkpoint](auto& worker, const ModuleConfig& config) -> void {
            fit.evaluation(worker, config, checkpoint, "val/")
                .template run<detail::ValidationHooks>(
                    Stage::validate, fit.options_.val,
                    [](M& module, const data::Batch& batch, Step& step) {
                        return module.validation_step(batch, step);
                    });
        };
    }
    /// The same for test_step and the data set FitOptions::test, under "test/".
    [[nodiscard]] auto test(Checkpoint checkpoint) const {
        static_assert(detail::HasTestStep<M>,
                      "rtrain: Fit::test() needs `auto test_step(const rtrain::data::Batch& batch, "
                      "rtrain::Step& step)` [RT-F9]");
        return [fit = *this, checkpoint](auto& worker, const ModuleConfig& config) -> void {
            fit.evaluation(worker, config, checkpoint, "test/")
                .template run<detail::TestHooks>(
                    Stage::test, fit.options_.test,
                    [](M& module, const data::Batch& batch, Step& step) {
                        return module.test_step(batch, step);
                    });
        };
    }
    /// Returns a function for Trainer::fit that calls `use(predictions)` on rank 0 with the tensors
    /// of predict_step, a row for each row of the data set FitOptions::test, in its order.
    [[nodiscard]] auto predict(Checkpoint checkpoint,
                               std::function<void(const at::Tensor&)> use) const {
        static_assert(detail::HasPredictStep<M>,
                      "rtrain: Fit::predict() needs `at::Tensor predict_step(const "
                      "rtrain::data::Batch& batch, rtrain::Step& step)` [RT-F9]");
        return [fit = *this, checkpoint, use](auto& worker, const ModuleConfig& config) -> void {
            const at::Tensor all = fit.evaluation(worker, config, checkpoint, "predict/").predict();
            if (worker.rank() == 0) {
                use(all);
            }
        };
    }

private:
    template <class W>
    [[nodiscard]] auto evaluation(W& worker, const ModuleConfig& config,
                                  const Checkpoint& checkpoint, const std::string& prefix) const {
        return detail::FitEvaluation<M, W, Callbacks...>(
            worker, {config, options_, make_, callbacks_}, checkpoint, prefix);
    }
    [[nodiscard]] static std::shared_ptr<M> make_module(const ModuleConfig& config) {
        if constexpr (std::constructible_from<M, const ModuleConfig&>) {
            return std::make_shared<M>(config);
        } else if constexpr (std::default_initializable<M>) {
            return std::make_shared<M>();
        } else {
            return nullptr;
        }
    }

    FitOptions options_;
    Make make_;
    std::tuple<Callbacks...> callbacks_;
};

} // namespace rtrain
