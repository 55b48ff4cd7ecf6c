// SPDX-License-Identifier: Apache-2.0
/// @file
/// TrialSettings: trials of a plain function run in threads of one process. Each starts with the
/// libtorch settings at the start of the search; changes to shared settings cause a warning.
#pragma once

#include <rtrain/backend/torch_settings.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/tune/threads/function_runner.hpp>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>

namespace rtrain::tune::internal {

/// Any thread may call the members.
class TrialSettings {
public:
    /// The scope of a trial, in the thread that runs it.
    class Scope {
    public:
        explicit Scope(TrialSettings& all) : all_(all) { all_.begin(); }
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;
        ~Scope() {
            thread_.restore();
            all_.end();
        }

    private:
        TrialSettings& all_;
        rtrain::detail::ThreadSettings thread_;
    };

private:
    void begin() {
        const std::lock_guard lock(mutex_);
        if (running_++ == 0) {
            process_.emplace();
        }
        several_ = several_ || running_ > 1;
        if (!random_.defined()) {
            random_ = random_state();
        }
    }

    /// Shared settings are restored when no trial uses them.
    void end() {
        const std::lock_guard lock(mutex_);
        --running_;
        if (several_ && !said_random_ && !random_state().equal(random_)) {
            said_random_ = true;
            console::warn("trials that run at the same time share torch's default generator, so "
                          "torch::manual_seed() does not make their draws reproducible; to repeat "
                          "a trial, set TuneConfig::max_concurrent_trials = 1, or tune a Trainer, "
                          "whose trials are processes");
        }
        if (running_ == 0) {
            process_->restore();
        } else if (!said_settings_ && rtrain::detail::ProcessSettings() != *process_) {
            said_settings_ = true;
            console::warn("a trial has changed settings of torch that concurrent trials share, "
                          "such as the default dtype; change them before the search, or set "
                          "TuneConfig::max_concurrent_trials = 1");
        }
    }

    static at::Tensor random_state() {
        at::Generator generator = at::detail::getDefaultCPUGenerator();
        const std::lock_guard lock(generator.mutex());
        return generator.get_state().clone();
    }

    std::mutex mutex_;
    int running_ = 0;
    bool several_ = false; ///< concurrently, so far
    bool said_random_ = false;
    bool said_settings_ = false;
    at::Tensor random_; ///< state of the default generator when the first trial began
    std::optional<rtrain::detail::ProcessSettings> process_; ///< before the running trials
};

/// Wraps `function` so that each call is a trial with separate settings.
[[nodiscard]] inline TrialFunction with_own_settings(const TrialFunction& function) {
    return [settings = std::make_shared<TrialSettings>(), function](Trial& trial,
                                                                    const Config& config) {
        const TrialSettings::Scope own(*settings);
        return function(trial, config);
    };
}

} // namespace rtrain::tune::internal
