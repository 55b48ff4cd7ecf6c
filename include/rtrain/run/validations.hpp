// SPDX-License-Identifier: Apache-2.0
/// @file
/// Validations: sends pending checkpoints to the validating process, and writes its results to the
/// checkpoints. Used by rank 0.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/store/store.hpp>
#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/checkpoint/validation_record.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/observers.hpp>
#include <rtrain/journal/run_log.hpp>
#include <rtrain/launch/session.hpp>
#include <rtrain/launch/validator.hpp>
#include <rtrain/process/context.hpp>
#include <rtrain/process/os/child.hpp>
#include <rtrain/run/options/report_options.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace rtrain {

class Validations {
public:
    /// `store`, `config` and `observers` outlive this object.
    Validations(checkpoint::Store& store, const ValidationConfig& config, launch::FitCall call,
                track::Observers& observers)
        : store_(store), config_(config), call_(call), observers_(observers) {}

    /// Returns what a report requests; empty for nothing. Throws ConfigError: RT-C15 no function is
    /// set, RT-C17 the time limit is not valid.
    [[nodiscard]] std::optional<checkpoint::ValidationRecord>
    wanted(const ReportOptions& options) const {
        if (!asks_for_validation(options)) {
            return std::nullopt;
        }
        if (!config_.function) {
            throw ConfigError("RT-C15", "a report requests validation, but the trainer has no "
                                        "validation function; set TrainerOptions::validation");
        }
        checkpoint::ValidationRecord record{.task = config_.task, .timeout_s = config_.timeout_s};
        if (const auto* const task = std::get_if<ValidationTask>(&options.validation)) {
            detail::check_validation_timeout(task->timeout_s);
            for (const auto& item : task->config) {
                record.task[item.key()] = item.value();
            }
            record.timeout_s = task->timeout_s ? task->timeout_s : record.timeout_s;
        }
        return record;
    }

    /// Submits the checkpoint `name` if it is pending. Does not block.
    void submit(const std::string& name) {
        for (const auto& item : store_.listing().committed) {
            if (item.name == name) {
                submit(item);
            }
        }
    }

    /// Submits all pending checkpoints of previous attempts.
    void resume() {
        for (const auto& item : store_.listing().committed) {
            submit(item);
        }
    }

    /// Waits until all validations have ended, at most `limit_s` seconds; periodically prints what
    /// it waits for to standard error.
    void wait(std::optional<double> limit_s) {
        using Clock = std::chrono::steady_clock;
        constexpr double look_every_s = 5;
        launch::Validator* const validator = running();
        const auto begin = Clock::now();
        double said = 0;
        for (double waited = 0; validator != nullptr;) {
            const double left = limit_s ? *limit_s - waited : look_every_s;
            if (validator->wait_all(std::clamp(left, 0.0, look_every_s))) {
                return;
            }
            ProcessContext::current()
                .status.advance(); // not a hang, however long the function takes
            waited = std::chrono::duration<double>(Clock::now() - begin).count();
            if (limit_s && waited >= *limit_s) {
                return;
            }
            if (waited - said >= said_every_s) {
                said = waited;
                say_pending(waited);
            }
        }
    }

private:
    void say_pending(double waited) const {
        std::string names;
        for (const auto& item : store_.listing().committed) {
            if (item.status() == CheckpointStatus::pending_validation) {
                names += " " + item.name;
            }
        }
        console::say("after %.0f s, still waiting for the validation of%s", waited, names.c_str());
    }

    void submit(const checkpoint::Committed& item) {
        if (item.status() != CheckpointStatus::pending_validation) {
            return;
        }
        if (!config_.function) {
            console::warn(
                "%s is pending validation, but the trainer no longer has a validation function",
                item.name.c_str());
            return;
        }
        const std::scoped_lock lock(mutex_);
        if (!validator_) {
            validator_ = std::make_unique<launch::Validator>(
                launch::HelperProgram{launch::own_command_line(),
                                      call_.session.helper_variables(call_.number)},
                [this](launch::Verdict verdict) { conclude(std::move(verdict)); });
        }
        names_[item.index] = item.name;
        validator_->submit({.id = item.index,
                            .checkpoint = item.checkpoint.path.string(),
                            .task = item.validation.task,
                            .timeout_s = item.validation.timeout_s});
    }

    [[nodiscard]] launch::Validator* running() {
        const std::scoped_lock lock(mutex_);
        return validator_.get();
    }

    /// Called in the validator's thread. Never stops training; a result that cannot be written is
    /// validated again when the run resumes.
    void conclude(launch::Verdict verdict) noexcept {
        std::string said;
        try {
            std::string name;
            {
                const std::scoped_lock lock(mutex_);
                name = names_.at(verdict.id);
                names_.erase(verdict.id);
            }
            said = verdict.failure ? verdict.failure->text() : "";
            for (const char* const reserved : track::RunLog::filled_fields) {
                if (verdict.metrics.erase(reserved) > 0) {
                    said += detail::concat(said.empty() ? "" : "; ", "the metric \"", reserved,
                                           "\" was dropped: the name is reserved by rtrain");
                }
            }
            const checkpoint::ValidationRecord record{
                .status = verdict.status, .metrics = std::move(verdict.metrics), .message = said};
            store_.conclude(name, record);
            observers_.validated({.checkpoint = name, .record = record});
        } catch (const std::exception& error) {
            console::warn("could not record a validation%s%s: %s",
                          said.empty() ? "" : ", with result ", said.c_str(), error.what());
        }
    }

    static constexpr double said_every_s = 60;
    checkpoint::Store& store_;
    const ValidationConfig& config_;
    launch::FitCall call_;
    track::Observers& observers_;
    std::mutex mutex_; ///< called from the training thread and a writing thread
    std::map<std::int64_t, std::string> names_;    ///< checkpoints being validated
    std::unique_ptr<launch::Validator> validator_; ///< last: its thread uses the others
};

} // namespace rtrain
