// SPDX-License-Identifier: Apache-2.0
/// @file
/// Trainables that are classes: they step until the search stops them.
///
/// @code
/// struct Model {
///     void setup(const rtrain::Config& config);
///     rtrain::Config step();               // its metrics
///     std::string save() const;            // bytes for load()
///     void load(const std::string& state);
///     bool reset_config(const rtrain::Config& config); // optional: true if it can start over
/// };
/// @endcode
#pragma once

#include <rtrain/config/run_info.hpp>
#include <rtrain/tune/threads/function_runner.hpp>
#include <rtrain/tune/threads/trial.hpp>

#include <algorithm>
#include <concepts>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::tune {

/// `setup` is called once, first. Then `load`, if the trial has a state, and `step` until the
/// search stops the trial, or a step's metrics have `"done": true`. `save` is called after each
/// step, or each n-th with RunConfig::checkpoint.frequency = n. With `reset_config`, an object
/// serves one trial after the other instead of new ones, as long as it returns true.
template <class T>
concept ClassTrainable = std::default_initializable<T> &&
    requires(T& it, const T& saved, const Config& config, const std::string& state) {
    it.setup(config);
    { it.step() } -> std::convertible_to<Config>;
    { saved.save() } -> std::convertible_to<std::string>;
    it.load(state);
};

/// Optional: `reset_config(config)`; returns true if the object can start over with another
/// configuration.
template <class T>
concept CanResetConfig = requires(T& it, const Config& config) {
    { it.reset_config(config) } -> std::convertible_to<bool>;
};

namespace internal {

/// Idle objects to reuse for further trials.
template <ClassTrainable T>
class ObjectPool {
public:
    /// Returns an object set up for a trial.
    [[nodiscard]] std::unique_ptr<T> take(const Config& config) {
        if constexpr (CanResetConfig<T>) {
            std::unique_ptr<T> used;
            {
                const std::lock_guard lock(mutex_);
                if (!free_.empty()) {
                    used = std::move(free_.back());
                    free_.pop_back();
                }
            }
            if (used && used->reset_config(config)) {
                return used;
            }
        }
        auto fresh = std::make_unique<T>();
        fresh->setup(config);
        return fresh;
    }
    void give_back(std::unique_ptr<T> object) {
        if constexpr (CanResetConfig<T>) {
            const std::lock_guard lock(mutex_);
            free_.push_back(std::move(object));
        }
    }

private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<T>> free_;
};

} // namespace internal

/// The function that runs a trial of such a class and saves each `frequency`-th step.
template <ClassTrainable T>
[[nodiscard]] TrialFunction function_of_class(int frequency) {
    auto pool = std::make_shared<internal::ObjectPool<T>>();
    return [pool, frequency](Trial& trial, const Config& config) -> std::optional<double> {
        std::unique_ptr<T> object = pool->take(config);
        if (trial.state()) {
            object->load(*trial.state());
        }
        for (auto step = trial.reports() + 1; !trial.should_stop(); ++step) {
            Config metrics = object->step();
            const auto* const done = metrics.if_contains("done");
            const bool last = done != nullptr && done->is_bool() && done->get_bool();
            if (last || step % std::max(frequency, 1) == 0) {
                trial.report(std::move(metrics), std::string(object->save()));
            } else {
                trial.report(std::move(metrics));
            }
            if (last) {
                break;
            }
        }
        pool->give_back(std::move(object));
        return std::nullopt;
    };
}

} // namespace rtrain::tune
