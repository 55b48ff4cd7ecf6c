// SPDX-License-Identifier: Apache-2.0
/// @file
/// FunctionRunner: runs the trials of a plain function in threads of this process, one for each
/// place.
#pragma once

#include <rtrain/base/console.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/base/exception_text.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/process/os/owner.hpp>
#include <rtrain/process/os/thread.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/tune/base/metric.hpp>
#include <rtrain/tune/controller/controller.hpp>
#include <rtrain/tune/record/exploits.hpp>
#include <rtrain/tune/resources/free_cores.hpp>
#include <rtrain/tune/resources/resources.hpp>
#include <rtrain/tune/resources/this_machine.hpp>
#include <rtrain/tune/threads/state_cache.hpp>
#include <rtrain/tune/threads/trial.hpp>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::tune {

/// A trial's work. It returns the value of the search's metric; none: the last report has it.
using TrialFunction = std::function<std::optional<double>(Trial&, const Config&)>;

/// Thrown by a trial's function when the search cannot continue; the trial has not failed.
class SearchBroken : public LaunchError {
    using LaunchError::LaunchError;
};

class FunctionRunner {
public:
    static constexpr const char* state_file = "state";

    /// Receives the reports of a trial.
    using Files = std::function<void(const Config& report)>;
    struct Hooks {
        /// Called after each trial, by one thread at a time, while the controller does not change.
        std::function<void()> at_ends{};
        /// Creates an additional receiver of a trial's reports at its first report. It may throw,
        /// which fails the trial. Empty: no receiver.
        std::function<Files(const Assignment&)> files{};
        /// Bytes of trials' newest states that are kept in memory, in addition to their files.
        std::uint64_t memory_for_states = 0;
        /// Cores for exclusive use by trials; none: trials are not bound.
        std::vector<int> cores{};
        /// Number of cores for a trial, which runs unbound if fewer are free.
        std::function<std::size_t(const Config&)> cores_of{};
    };

    FunctionRunner(Controller& controller, TrialFunction function, std::vector<Place> places,
                   Hooks hooks)
        : controller_(controller), function_(std::move(function)), places_(std::move(places)),
          hooks_(std::move(hooks)), kept_(hooks_.memory_for_states), free_cores_(hooks_.cores) {}

    /// Returns when the search is over. Throws the error that ended it early, such as ConfigError
    /// [RT-U101]; an exception of the function ends its trial only.
    void run() {
        {
            std::vector<process::Thread> others;
            try {
                for (std::size_t i = 1; i < places_.size(); ++i) {
                    others.emplace_back([this, i] { work(places_[i]); });
                }
            } catch (const LaunchError& error) {
                console::warn("%zu trials at a time, not %zu: %s", others.size() + 1,
                              places_.size(), error.what());
            }
            work(places_.front());
        }
        if (broken_) {
            std::rethrow_exception(broken_);
        }
        controller_.close();
    }

private:
    using Clock = std::chrono::steady_clock;

    static double seconds_since(Clock::time_point begin) {
        return std::chrono::duration<double>(Clock::now() - begin).count();
    }
    [[nodiscard]] double now_s() const { return seconds_since(begin_); }

    void work(const Place& place) {
        std::unique_lock lock(mutex_);
        while (!broken_) {
            try {
                if (const auto assignment = controller_.next(now_s())) {
                    lock.unlock();
                    run_trial(*assignment, place);
                    lock.lock();
                    hooks_.at_ends();
                    changed_.notify_all();
                } else if (controller_.running() > 0) {
                    changed_.wait(lock);
                } else {
                    require_end();
                    break;
                }
            } catch (...) {
                if (!lock.owns_lock()) {
                    lock.lock();
                }
                break_off();
            }
        }
        changed_.notify_all();
    }

    /// Throws unless the search can end: nothing runs and nothing begins.
    void require_end() const {
        if (!controller_.is_over() && !controller_.anyone_waits()) {
            throw Error("RT-U105", "the searcher waits for a trial to end, but none is running; "
                                   "have its ask() return a configuration or Exhausted");
        }
    }

    /// Ends the search, which cannot continue.
    void break_off() noexcept {
        if (!broken_) {
            broken_ = std::current_exception();
        }
        controller_.stop();
    }

    void run_trial(const Assignment& assignment, Place place) {
        const auto begin = Clock::now();
        const std::string& id = assignment.trial;
        std::optional<double> score = score_behind(assignment);
        std::string error;
        bool failed = false;
        try {
            const auto taken =
                free_cores_.take(hooks_.cores_of ? hooks_.cores_of(assignment.config) : 0);
            const rtrain::detail::OnCores bound(taken.cores()); // and all threads it starts
            place.cores = taken.cores();
            Files files;
            const auto listen = [&](Config metrics, std::optional<std::string_view> saved) {
                track::require_metric_names(metrics);
                score = number_at(metrics, metric_name());
                if (!files && hooks_.files) {
                    files = hooks_.files(assignment);
                }
                return hear(assignment, std::move(metrics), saved, seconds_since(begin), files);
            };
            const auto saved = [&](const SavedState& state) {
                const std::lock_guard lock(mutex_);
                controller_.saved(id, state);
            };
            Trial trial(assignment, place, state_of(assignment), listen, saved);
            std::optional<double> value;
            process::call_in_this_process([&] { value = function_(trial, trial.config()); });
            const bool is_known =
                value == score || (value && score && std::isnan(*value) && std::isnan(*score));
            if (value && !is_known && !trial.should_stop()) {
                (void)hear(assignment, {{metric_name(), *value}}, std::nullopt,
                           seconds_since(begin), files);
            }
        } catch (const SearchBroken&) {
            throw;
        } catch (const std::exception& thrown) {
            failed = true;
            error = thrown.what();
        } catch (...) {
            failed = true;
            error = rtrain::detail::thrown_object();
        }
        const std::lock_guard lock(mutex_);
        if (!broken_) { // else that may be why it failed; it runs again with the search
            failed ? controller_.failed(id, error, now_s()) : controller_.returned(id, now_s());
        }
        if (is_over(controller_.record(id).state)) {
            kept_.forget(id);
        }
    }

    /// The newest report's score, if the trial continues after it: its function may return this
    /// score without another report.
    [[nodiscard]] std::optional<double> score_behind(const Assignment& trial) {
        const std::lock_guard lock(mutex_);
        const Config& newest = controller_.record(trial.trial).metrics;
        const bool is_behind =
            trial.reports > 0 && internal::takeovers_before(newest) == trial.taken_over &&
            number_at(newest, "training_iteration") == static_cast<double>(trial.reports);
        return is_behind ? number_at(newest, metric_name()) : std::nullopt;
    }

    [[nodiscard]] StateBytes state_of(const Assignment& trial) const {
        if (trial.state.empty()) {
            return std::make_shared<const std::optional<std::string>>();
        }
        const auto file = trial.directory / trial.state / state_file;
        const StateBytes kept = kept_.find(file);
        return kept ? kept
                    : std::make_shared<const std::optional<std::string>>(storage::read_file(file));
    }

    [[nodiscard]] std::string metric_name() const {
        const std::string& name = controller_.plan().goal.metric;
        return name.empty() ? "score" : name;
    }

    /// The state is complete, or absent, before the report that includes it.
    bool hear(const Assignment& trial, Config metrics, std::optional<std::string_view> state,
              double time_s, const Files& files) {
        if (state) {
            save(trial, *state);
        }
        bool goes_on = false;
        Config report;
        {
            const std::lock_guard lock(mutex_);
            try {
                goes_on = !broken_ && controller_.report(trial.trial, std::move(metrics), time_s,
                                                         state.has_value(), now_s());
                changed_.notify_all(); // other trials may now continue
                if (files && !broken_) {
                    report = controller_.record(trial.trial).metrics;
                }
            } catch (...) {
                break_off();
            }
        }
        if (!report.empty()) {
            files(report);
        }
        return goes_on;
    }

    void save(const Assignment& trial, std::string_view state) {
        namespace fs = std::filesystem;
        std::string name;
        {
            const std::lock_guard lock(mutex_);
            name = controller_.next_state(trial.trial);
        }
        const fs::path to = trial.directory / name;
        const fs::path half = to.string() + ".half";
        fs::create_directories(half);
        storage::OutputFile file(half / state_file);
        file.write(state);
        file.close();
        fs::remove_all(to); // left by a search killed before the report
        fs::rename(half, to);
        if (hooks_.memory_for_states > 0) {
            kept_.keep(trial.trial, to / state_file, state);
        }
    }

    Controller& controller_;
    TrialFunction function_;
    std::vector<Place> places_;
    Hooks hooks_;
    internal::StateCache kept_;
    internal::FreeCores free_cores_;
    Clock::time_point begin_ = Clock::now();
    std::mutex mutex_; ///< of the controller and the members below
    std::condition_variable changed_;
    std::exception_ptr broken_;
};

} // namespace rtrain::tune
