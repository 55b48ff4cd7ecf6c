// SPDX-License-Identifier: Apache-2.0
/// @file
/// RunConsole: terminal output of a run, as ConsoleConfig specifies: its setup, a progress bar, and
/// its outcome. Always logs the results of validations, and the reasons for restarts.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/checkpoint/store/ranking.hpp>
#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/console/display.hpp>
#include <rtrain/console/meter.hpp>
#include <rtrain/console/model_table.hpp>
#include <rtrain/journal/observer.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/process/preemption/signals_blocked.hpp>
#include <rtrain/process/status/loop_status.hpp>
#include <rtrain/process/status/step_clock.hpp>
#include <rtrain/track/terminal/console_text.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::track {

/// Training never waits for it: a thread draws the bar from counters that each batch increments.
class RunConsole : public Observer {
public:
    RunConsole(ConsoleConfig config, CheckpointConfig ranking, RunFacts facts,
               std::shared_ptr<console::Display> display)
        : config_(config), facts_(std::move(facts)), display_(std::move(display)),
          outcome_(std::move(ranking)) {}
    ~RunConsole() override { end_thread(); }

    [[nodiscard]] std::string name() const override { return "the console"; }

    void started(const Started& event) override {
        context_.loop.reset();
        if (config_.verbose == 0) {
            return;
        }
        display_->print(std::exchange(has_header_, true) ? resumed_text(event)
                                                         : header_text(event, facts_));
        const std::scoped_lock lock(mutex_);
        outcome_.begin(event);
        models_.clear();
        steps_before_ = context_.clock.steps();
        begun_s_ = now_s();
        meter_.begin(begun_s_, steps_before_);
        if (!thread_.joinable()) {
            const launch::SignalsBlocked blocked;
            thread_ = rtrain::process::Thread([this] {
                try {
                    run();
                } catch (const std::exception& error) { // such as std::bad_alloc
                    console::warn("the progress bar failed; the run continues: %s", error.what());
                }
            });
        }
    }

    void prepared(const Prepared& event) override {
        const std::scoped_lock lock(mutex_);
        models_.push_back({event.parts, event.first_step_flops});
    }

    void reported(const Reported& event) override {
        const std::scoped_lock lock(mutex_);
        outcome_.reported(event.line);
        metrics_.report(event.line);
        show_models();
    }
    void stepped(const Stepped& event) override {
        const std::scoped_lock lock(mutex_);
        if (event.line != nullptr && !event.line->empty()) {
            metrics_.step(*event.line);
        }
    }
    void saved(const Saved& event) override {
        const std::scoped_lock lock(mutex_);
        outcome_.saved(event);
    }

    void validated(const Validated& event) override {
        const checkpoint::ValidationRecord& record = event.record;
        if (record.message.empty()) {
            return;
        }
        if (record.status == CheckpointStatus::validated) {
            console::say("validation of %s: %s", event.checkpoint.c_str(), record.message.c_str());
        } else {
            console::warn("validation of %s failed: %s", event.checkpoint.c_str(),
                          record.message.c_str());
        }
    }

    void restarting(const Restarting& event) override {
        console::warn("%s", event.what.c_str());
        if (event.lost_ranks) {
            console::warn("continuing with %d ranks", event.ranks);
        }
        console::warn("%s", event.reason.c_str());
        facts_.ranks = event.ranks;
    }

    void ended(const Ended& event) override {
        if (!has_header_) {
            return;
        }
        end_thread();
        show_models();
        display_->take_off();
        display_->print(outcome_.text(event.how, facts_));
        constexpr std::chrono::seconds patience{2}; // a terminal may be suspended
        (void)display_->drain(patience);
    }

private:
    struct Model {
        std::vector<console::ModelPart> parts;
        std::function<std::optional<double>()> flops;
    };

    static double now_s() { return 1e-9 * static_cast<double>(StepClock::now_ns()); }

    /// True if the first step has ended, or if that cannot be detected.
    [[nodiscard]] bool has_stepped(const LoopStatus::Reading& loop) const {
        constexpr double patience_s = 60;
        constexpr std::int64_t batches = 2; // a model may be called without its handle
        return context_.clock.steps() > steps_before_ || loop.done - loop.length.first >= batches ||
               now_s() - begun_s_ > patience_s;
    }

    /// Called after the first step, or at the first report if earlier. Ends the FLOP count.
    void show_models() {
        for (const Model& model : std::exchange(models_, {})) {
            display_->print(model_text(model.parts, config_.verbose,
                                       model.flops ? model.flops() : std::nullopt,
                                       context_.loop.read().length, display_->columns()));
        }
    }

    void run() {
        using namespace std::chrono_literals;
        std::unique_lock lock(mutex_);
        while (!ends_) {
            const LoopStatus::Reading loop = context_.loop.read();
            if (has_stepped(loop)) {
                show_models();
            }
            console::Progress now = meter_.look(loop, context_.clock.steps(), now_s());
            if (now.done > 0) {
                now.metrics = metrics_.text();
                display_->show(now);
            }
            const bool often = display_->is_terminal() || !models_.empty();
            (void)work_.wait_for(lock, often ? 100ms : 1000ms, [this] { return ends_; });
        }
    }

    void end_thread() {
        if (!thread_.joinable()) {
            return;
        }
        {
            const std::scoped_lock lock(mutex_);
            ends_ = true;
        }
        work_.notify_one();
        thread_.join();
        ends_ = false;
    }

    ProcessContext& context_ = ProcessContext::current();
    ConsoleConfig config_;
    RunFacts facts_;
    std::shared_ptr<console::Display> display_;
    bool has_header_ = false;
    rtrain::process::Thread thread_;

    std::mutex mutex_; ///< guards the following members, while there is a thread
    std::condition_variable work_;
    bool ends_ = false;
    RunOutcome outcome_;
    LatestMetrics metrics_;
    console::Meter meter_;
    double begun_s_ = 0;
    std::int64_t steps_before_ = 0;
    std::vector<Model> models_; ///< not shown yet
};

} // namespace rtrain::track
