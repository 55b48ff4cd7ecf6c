// SPDX-License-Identifier: Apache-2.0
/// @file
/// Asynchronous validation of checkpoints: a function that a helper process calls while training
/// continues. Names follow Ray Train's ValidationConfig and ValidationTaskConfig. Cost tier 1: std
/// and Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/name_table.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/config.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rtrain {

/// The validation that one report requests.
struct ValidationTask {
    /// Overrides ValidationConfig::task, key by key.
    Config config{};
    /// Seconds; overrides ValidationConfig::timeout_s.
    std::optional<double> timeout_s{};
};

/// Validation of checkpoints: `TrainerOptions::validation`.
///
/// A separate process, started by rank 0 from this same program at the first request, validates one
/// checkpoint after the other. It runs main() up to the same `fit()` call, so the function may use
/// everything that main() makes, but shares no memory with the ranks. It runs at a lower priority;
/// if it throws or crashes, only that validation fails.
///
/// @code
/// rtrain::Trainer<> trainer{{.validation = {.function = [&](const rtrain::Checkpoint& checkpoint,
///                                                           const rtrain::Config& task) {
///     return rtrain::Config{{"accuracy", accuracy_of(checkpoint, test_data)}};
/// }}}};
/// trainer.fit([](auto& worker) { ... worker.report(metrics, state, {.validation = true}); ... });
/// @endcode
struct ValidationConfig {
    /// Returns metrics, which are merged into the checkpoint's. Unset: no report may request
    /// validation (RT-C15).
    std::function<Config(const Checkpoint& checkpoint, const Config& task)> function{};
    /// The function's second argument.
    Config task{};
    /// Seconds that one validation may take, above 0 (RT-C17); then it counts as timed out. Unset:
    /// no limit. Starting the process has the same limit separately.
    std::optional<double> timeout_s{};
};

/// Status of a committed checkpoint, named as in Ray Train.
enum class CheckpointStatus : std::uint8_t {
    committed,          ///< no validation was requested
    pending_validation, ///< waits for validation, or is being validated
    validated,          ///< its metrics include those of the validation
    validation_timeout, ///< the validation took longer than its limit
    validation_failed,  ///< the validation function threw, or its process died
};

namespace detail {

inline constexpr auto checkpoint_status_names =
    name_table<CheckpointStatus>({{CheckpointStatus::committed, "committed"},
                                  {CheckpointStatus::pending_validation, "pending_validation"},
                                  {CheckpointStatus::validated, "validated"},
                                  {CheckpointStatus::validation_timeout, "validation_timeout"},
                                  {CheckpointStatus::validation_failed, "validation_failed"}});

} // namespace detail

/// "committed", "pending_validation", ...
[[nodiscard]] constexpr std::string_view to_string(CheckpointStatus status) noexcept {
    return detail::checkpoint_status_names[status];
}

/// Returns the status with that name. Throws std::invalid_argument if it does not exist.
[[nodiscard]] inline CheckpointStatus checkpoint_status(std::string_view name) {
    const auto status = detail::checkpoint_status_names.parse(name);
    if (!status) {
        throw std::invalid_argument("unknown status \"" + std::string(name) + "\"");
    }
    return *status;
}

namespace detail {

/// Throws ConfigError [RT-C17] for an invalid limit.
inline void check_validation_timeout(const std::optional<double>& timeout_s) {
    if (timeout_s && !(*timeout_s > 0)) {
        throw ConfigError("RT-C17", concat("the time limit of a validation is ", *timeout_s,
                                           " s; expected more than 0, or unset for no limit"));
    }
}

} // namespace detail
} // namespace rtrain
