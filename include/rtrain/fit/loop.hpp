// SPDX-License-Identifier: Apache-2.0
/// @file
/// FitLoop: the training of one Fit on a rank.
#pragma once

#include <rtrain/fit/checks.hpp>
#include <rtrain/fit/context.hpp>
#include <rtrain/fit/gradients.hpp>
#include <rtrain/fit/optimizers.hpp>
#include <rtrain/fit/windows.hpp>
#include <rtrain/model/activation/random_states.hpp>
#include <rtrain/model/amp/grad_scaler.hpp>
#include <rtrain/state/state.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace rtrain::detail {

template <class M, class W, class... Callbacks>
class FitLoop final : public FitContext<M, W, Callbacks...> {
    using Base = FitContext<M, W, Callbacks...>;
    using Base::callbacks_;
    using Base::model_;
    using Base::options_;
    using Base::worker_;

public:
    FitLoop(W& worker, typename Base::Parts parts)
        : Base(worker, std::move(parts)), windows_(worker, options_, accumulate(0)),
          scaler_({.enabled = options_.precision == Precision::float16}),
          plan_(options_, worker.size(), windows_.batches(),
                [this](int epoch) { return windows_.passes_of(accumulate(epoch)); }),
          step_(*this, plan_, worker.rank(), train_) {
        check_fit(options_, {.ranks = worker.size(),
                             .is_automatic = is_automatic,
                             .has_validation = validates(),
                             .accumulate = accumulate(0),
                             .batches = windows_.all_batches()});
    }

    void run() {
        std::optional<torch::autograd::DetectAnomalyGuard> anomaly;
        if (options_.detect_anomaly) {
            anomaly.emplace();
        }
        this->with_exception_hooks(step_, [this] { train(); });
    }

    void backward(const at::Tensor& loss) override {
        require_manual();
        check_loss(loss);
        this->template call<on_before_backward_hook>(loss, step_);
        model_.prepared()->end_forward(loss);
        {
            const c10::impl::ExcludeDispatchKeyGuard without_autocast(
                c10::autocast_dispatch_keyset);
            scaler_.scale(loss).backward();
        }
        this->template call<on_after_backward_hook>(step_);
        loss_ = loss.detach();
    }
    void zero_grad(std::size_t number) override {
        require_manual();
        optimizer_of(number).zero_grad();
    }
    void step(std::size_t number) override {
        require_manual();
        FitOptimizer& optimizer = optimizer_of(number);
        optimizer.unscale(scaler_);
        this->template call<on_before_optimizer_step_hook>(optimizer.get(), step_);
        optimizer.step(scaler_);
        scaler_.update();
        count_step();
        optimizer.step_schedule(Every::step);
    }
    [[nodiscard]] torch::optim::Optimizer& optimizer(std::size_t number) override {
        return optimizer_of(number).get();
    }
    [[nodiscard]] std::size_t optimizers() const override { return optimizers_.size(); }

private:
    static constexpr bool is_automatic = optimizes_automatically<M>();

    /// The part of a checkpoint that is neither the model nor an optimizer.
    struct Saved {
        FitLoop* loop;
        void save(StateWriter& out) const { loop->save(out); }
        void load(const StateReader& in) { loop->load(in); }
    };

    void train() {
        this->template call<setup_hook>(step_);
        prepare_optimizers(worker_, model_->configure_optimizers(plan_), optimizers_);
        State state = State{}.add("model", model_).add("fit", saved_);
        for (std::size_t i = 0; i < optimizers_.size(); ++i) {
            optimizers_[i]->add_to(state, optimizers_.size() > 1 ? "." + std::to_string(i) : "");
        }
        state_.emplace(std::move(state));
        const bool is_new = !worker_.checkpoint();
        calls_save_hooks_ = false; // epochs() tries to save
        auto epochs = worker_.epochs(plan_.epochs(), *state_);
        calls_save_hooks_ = true;
        this->template call<on_fit_start_hook>(step_);
        if (is_new && options_.sanity_val_batches > 0 && !is_short() && validates()) {
            sanity_check();
        }
        this->template call<on_train_start_hook>(step_);
        for (const int epoch : epochs) {
            run_epoch(epoch);
        }
        this->template call<on_train_end_hook>(step_);
        this->template call<on_fit_end_hook>(step_);
        this->template call<teardown_hook>(step_);
    }

    void run_epoch(int epoch) {
        progress().epoch = epoch;
        windows_.begin_epoch(accumulate(epoch));
        this->template call<on_train_epoch_start_hook>(step_);
        for (const data::Batch& batch : windows_.epoch()) {
            if (!run_batch(batch)) {
                break;
            }
        }
        const bool is_last = epoch + 1 == plan_.epochs() || has_made_all_steps();
        const bool is_due =
            options_.val_every_steps == 0 && (epoch + 1) % options_.val_every_epochs == 0;
        if (is_last || is_due) {
            validate();
        }
        this->template call<on_train_epoch_end_hook>(step_);
        const bool is_stopped = agree_to_stop(epoch);
        if (is_stopped) {
            validate();
        }
        for (const auto& optimizer : optimizers_) {
            optimizer->step_schedule(Every::epoch);
        }
        progress().batch = 0;
        if (has_made_all_steps() || is_stopped) {
            worker_.stop();
        }
        if (is_last || is_stopped || is_due || !validates()) {
            report();
        }
    }

    /// Returns true if a rank has called step.stop(), and this epoch may be the last. *Collective.*
    [[nodiscard]] bool agree_to_stop(int epoch) {
        return epoch + 1 >= options_.min_epochs &&
               worker_.all_reduce(step_.is_to_stop_ ? 1 : 0) != 0;
    }
    [[nodiscard]] bool has_made_all_steps() const {
        return options_.max_steps > 0 && step_.progress_.steps >= options_.max_steps;
    }

    /// Runs a batch. Returns false if it is left out, with those after it.
    bool run_batch(const data::Batch& batch) {
        if (progress().window == 0) {
            window_ = has_made_all_steps() ? 0 : windows_.next(progress().batch);
        }
        if (window_ == 0 || windows_.ends_before(progress().batch)) {
            return false;
        }
        step_.rows_ = static_cast<double>(batch.size());
        step_.ends_window_ = ++progress().window >= window_;
        this->template call<on_train_batch_start_hook>(batch, step_);
        if constexpr (is_automatic) {
            train_on(batch);
        } else {
            (void)model_.call([&] {
                static_cast<void>(model_->training_step(batch, step_));
                return loss_;
            });
        }
        this->template call<on_train_batch_end_hook>(batch, step_);
        ++progress().batch;
        step_.rows_ = 1;
        if (step_.ends_window()) {
            end_window();
        }
        return true;
    }

    void train_on(const data::Batch& batch) {
        const at::Tensor loss =
            model_.call([&] { return at::Tensor(model_->training_step(batch, step_)); });
        check_loss(loss);
        step_.log("loss", loss);
        if (progress().window == 1) {
            for (const auto& optimizer : optimizers_) {
                this->template call<on_before_zero_grad_hook>(optimizer->get(), step_);
                optimizer->zero_grad();
            }
        }
        this->template call<on_before_backward_hook>(loss, step_);
        const at::Tensor share =
            scaler_.scale(window_ > 1 ? loss / static_cast<double>(window_) : loss);
        if (step_.ends_window()) {
            share.backward();
        } else {
            const auto alone = model_.no_sync();
            share.backward();
        }
        this->template call<on_after_backward_hook>(step_);
        if (step_.ends_window()) {
            step_all();
        }
    }

    void step_all() {
        for (const auto& optimizer : optimizers_) {
            optimizer->unscale(scaler_);
            this->template call<on_before_optimizer_step_hook>(optimizer->get(), step_);
        }
        if constexpr (ClipsGradients<M>) {
            model_->configure_gradient_clipping(step_);
        } else if (options_.clip_norm > 0) {
            (void)model_.clip_grad_norm_(options_.clip_norm);
        } else if (options_.clip_value > 0) {
            for (const auto& optimizer : optimizers_) {
                optimizer->clip_values(options_.clip_value);
            }
        }
        const auto step = [this] {
            for (const auto& optimizer : optimizers_) {
                optimizer->step(scaler_);
            }
        };
        if constexpr (StepsOptimizer<M>) {
            model_->optimizer_step(step_, std::function<void()>(step));
        } else {
            step();
        }
        scaler_.update();
        count_step();
        for (const auto& optimizer : optimizers_) {
            optimizer->step_schedule(Every::step);
        }
    }
    void count_step() {
        ++progress().steps;
        ++progress().unreported;
    }

    void end_window() {
        progress().window = 0;
        this->log_line(train_);
        const std::int64_t every = options_.val_every_steps;
        if (every > 0 && progress().unreported >= every) {
            validate();
            report();
        }
    }

    /// Validates for the next report, if there are rows for it, and steps since the last one.
    void validate() {
        if constexpr (HasValidationStep<M>) {
            if (validates() && !is_validated_ && progress().unreported > 0) {
                run_validation(Stage::validate, windows_.limit(options_.limit_val_batches));
            }
        }
    }
    /// Leaves no trace but in hooks.
    void sanity_check() {
        if constexpr (HasValidationStep<M>) {
            const RandomStates states(model_->parameters());
            const RandomStates::Scope same(states);
            this->template call<on_sanity_check_start_hook>(step_);
            run_validation(Stage::sanity_check, options_.sanity_val_batches);
            this->template call<on_sanity_check_end_hook>(step_);
            val_.values().reset();
            is_validated_ = false;
        }
    }
    void run_validation(Stage stage, std::int64_t limit) {
        auto batches = worker_.dataset_shard(options_.val)
                           .batches({.size = options_.batch_size, .threads = options_.threads});
        this->template evaluate<ValidationHooks>(
            {step_, stage, val_, limit}, batches, [&](const data::Batch& batch) {
                this->run_step(step_, [&] { return model_->validation_step(batch, step_); });
            });
        is_validated_ = true;
    }

    /// Reports the means since the last report, and saves a checkpoint.
    void report() {
        if (progress().unreported == 0) {
            return;
        }
        Config metrics = worker_.reduce(train_.values());
        if (std::exchange(is_validated_, false)) {
            for (const auto& item : worker_.reduce(val_.values())) {
                metrics[item.key()] = item.value();
            }
        }
        const std::string monitor = validates() ? "val/loss" : "loss";
        for (const auto& optimizer : optimizers_) {
            optimizer->follow(metrics, monitor);
        }
        metrics["epoch"] = progress().epoch;
        metrics["steps"] = progress().steps;
        progress().unreported = 0;
        worker_.report(metrics, *state_);
    }

    void save(StateWriter& out) {
        const FitProgress& now = progress();
        out.value("steps", now.steps);
        out.value("batch", now.batch);
        out.value("window", now.window);
        out.value("window_batches", window_);
        out.value("unreported", now.unreported);
        StateWriter logged = out.part("logged");
        train_.values().save(logged);
        StateWriter scaler = out.part("scaler");
        scaler_.save(scaler);
        if (now.window > 0) {
            StateWriter gradients = out.part("gradients");
            save_gradients(*model_, gradients);
        }
        this->save_callbacks(out);
        if (calls_save_hooks_) {
            StateWriter hooks = out.part("hooks");
            this->template call<on_save_checkpoint_hook>(hooks);
        }
    }
    void load(const StateReader& in) {
        progress().steps = in.value("steps").to_number<std::int64_t>();
        progress().batch = in.value("batch").to_number<std::int64_t>();
        progress().window = in.value("window").to_number<int>();
        progress().unreported = in.value("unreported").to_number<std::int64_t>();
        train_.values().load(in.part("logged"));
        scaler_.load(in.part("scaler"));
        if (progress().window > 0) {
            load_gradients(*model_, in.part("gradients"));
        }
        window_ = in.value("window_batches").to_number<int>();
        this->load_callbacks(in);
    }

    [[nodiscard]] FitProgress& progress() noexcept { return step_.progress_; }
    [[nodiscard]] bool validates() const {
        return HasValidationStep<M> && worker_.has_dataset(options_.val);
    }
    /// True for a trial of the program.
    [[nodiscard]] bool is_short() const {
        return options_.fast_dev_run > 0 || worker_.fast_dev_run() > 0;
    }
    /// FitOptions::accumulate, or what a callback chooses.
    [[nodiscard]] int accumulate(int epoch) const {
        int batches = options_.accumulate;
        [[maybe_unused]] const auto ask = [&](const auto& callback) {
            if constexpr (ChoosesAccumulation<std::remove_reference_t<decltype(callback)>>) {
                batches = callback.accumulate(epoch);
            }
        };
        std::apply([&](const auto&... each) { (ask(each), ...); }, callbacks_);
        return batches;
    }
    [[nodiscard]] FitOptimizer& optimizer_of(std::size_t number) {
        if (number >= optimizers_.size()) {
            Base::refuse();
        }
        return *optimizers_[number];
    }
    static void require_manual() {
        if constexpr (is_automatic) {
            Base::refuse();
        }
    }

    FitWindows<W> windows_;
    GradScaler scaler_;
    Plan plan_;
    Logged train_{""};
    Logged val_{"val/"};
    Step step_;
    FitOptimizers optimizers_;
    Saved saved_{this};
    std::optional<State> state_;
    at::Tensor loss_;              ///< of the last step.backward()
    int window_ = 1;               ///< batches of the current window
    bool is_validated_ = false;    ///< since the last report
    bool calls_save_hooks_ = true; ///< false while a save is tried
};

} // namespace rtrain::detail
