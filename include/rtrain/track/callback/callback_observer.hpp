// SPDX-License-Identifier: Apache-2.0
/// @file
/// CallbackObserver: adapts a callback of RunConfig::callbacks to Observer.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/callback.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/observer.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/journal/result.hpp>
#include <rtrain/storage/filesystem.hpp>
#include <rtrain/track/callback/background_calls.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rtrain::track {

/// A callback that is disabled once it throws.
class GuardedCallback {
public:
    explicit GuardedCallback(AnyCallback callback) : callback_(std::move(callback)) {}

    [[nodiscard]] const AnyCallback& get() const noexcept { return callback_; }

    /// Calls `action(callback)` unless an earlier call threw. Call from one thread.
    template <class Action>
    void call(Action&& action) noexcept {
        if (!is_on_) {
            return;
        }
        try {
            action(callback_);
        } catch (const std::exception& error) {
            switch_off(error.what());
        } catch (...) {
            switch_off(rtrain::detail::thrown_object().c_str());
        }
    }

private:
    void switch_off(const char* what) noexcept {
        is_on_ = false;
        console::warn("the callback %s threw and is not called again; the run "
                      "continues: %s",
                      callback_.name().c_str(), what);
    }

    AnyCallback callback_;
    bool is_on_ = true;
};

class CallbackObserver : public Observer {
public:
    /// `ranks` ranks train in the run in directory `at`. If `background` is not null, calls run
    /// there.
    CallbackObserver(AnyCallback callback, Config config, int ranks, storage::Location at,
                     std::shared_ptr<BackgroundCalls> background)
        : guarded_(std::make_shared<GuardedCallback>(std::move(callback))),
          run_{.config = std::move(config), .ranks = ranks}, at_(std::move(at)),
          background_(std::move(background)) {}

    [[nodiscard]] std::string name() const override { return guarded_->get().name(); }

    void started(const Started& event) override {
        run_ = {.name = event.name,
                .directory = event.logs,
                .location = event.location,
                .config = std::move(run_.config),
                .attempt = event.attempt,
                .position = {.iteration = event.iteration},
                .resumed = event.resumed,
                .ranks = run_.ranks};
        call([](const AnyCallback& it, const RunInfo& run) { it.on_start(run); });
    }
    void reported(const Reported& event) override {
        run_.position.iteration = number_of(event.line);
    }
    void reported_by_all(const ReportedByAll& event) override {
        constexpr std::size_t most = 10'000;
        if (!guarded_->get().takes_reports()) {
            return;
        }
        if (background_ && background_->waiting() >= most) {
            ++missed_;
            return;
        }
        call([metrics = event.metrics, checkpoint = event.checkpoint](const AnyCallback& it,
                                                                      const RunInfo& run) {
            it.after_report(run, metrics, checkpoint);
        });
    }
    void saved(const Saved& event) override {
        Checkpoint checkpoint(at_.path + "/" + event.checkpoint, files());
        call([checkpoint = std::move(checkpoint)](const AnyCallback& it, const RunInfo& run) {
            it.after_checkpoint(run, checkpoint);
        });
    }
    void failed(const Failed& event) override {
        call([failures = event.failures](const AnyCallback& it, const RunInfo& run) {
            it.after_exception(run, failures);
        });
    }
    void restarting(const Restarting& event) override { run_.ranks = event.ranks; }
    void ended(const Ended& event) override {
        if (event.result != nullptr) {
            call([result = *event.result](const AnyCallback& it, const RunInfo& /*run*/) {
                it.on_end(result);
            });
        }
        if (missed_ > 0) {
            console::warn("the callback %s was too slow and missed %lld reports", name().c_str(),
                          missed_);
        }
    }

private:
    template <class Action>
    void call(Action action) {
        if (!background_) {
            guarded_->call([&](const AnyCallback& it) { action(it, run_); });
            return;
        }
        background_->add([guarded = guarded_, action = std::move(action), run = run_] {
            guarded->call([&](const AnyCallback& it) { action(it, run); });
        });
    }

    [[nodiscard]] std::optional<storage::AnyFilesystem> files() const {
        return at_.filesystem.is_local() ? std::nullopt : std::optional(at_.filesystem);
    }

    std::shared_ptr<GuardedCallback> guarded_;
    RunInfo run_;
    storage::Location at_;
    std::shared_ptr<BackgroundCalls> background_;
    long long missed_ = 0;
};

} // namespace rtrain::track
