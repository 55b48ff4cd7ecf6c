// SPDX-License-Identifier: Apache-2.0
/// @file
/// Asynchronous validation of checkpoints, as users ask for it: a function that a helper process
/// calls while training goes on. Names follow Ray Train's ValidationConfig and
/// ValidationTaskConfig. Cost tier 1: std and Boost.JSON.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/config/config.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rtrain {

/// What one report asks the validation function for.
struct ValidationTask {
    /// Put over ValidationConfig::task, key by key.
    Config config{};
    /// Seconds; takes the place of ValidationConfig::timeout_s.
    std::optional<double> timeout_s{};
};

/// How checkpoints are validated: `TrainerOptions::validation`.
///
/// A process of its own, started by rank 0 from this same program at the first request, validates
/// one checkpoint after the other. It runs main() up to the same `fit()` call, so the function may
/// use everything that main() makes, but shares no memory with the ranks. It runs at a lower
/// priority; what it does to itself, throw or crash, makes that validation fail and nothing else.
///
/// @code
/// rtrain::Trainer<> trainer{{.validation = {.function = [&](const rtrain::Checkpoint& checkpoint,
///                                                           const rtrain::Config& task) {
///     return rtrain::Config{{"accuracy", accuracy_of(checkpoint, test_data)}};
/// }}}};
/// trainer.fit([](auto& worker) { ... worker.report(metrics, state, {.validation = true}); ... });
/// @endcode
struct ValidationConfig {
    /// Returns metrics, which are merged into the checkpoint's. Unset: no report may ask for
    /// validation (RT-C15).
    std::function<Config(const Checkpoint& checkpoint, const Config& task)> function{};
    /// The function's second argument.
    Config task{};
    /// Seconds that one validation may take, above 0 (RT-C17); then it counts as timed out. Unset:
    /// no limit. Starting the process has the same limit once more.
    std::optional<double> timeout_s{};
};

/// What is known about a committed checkpoint. The names of Ray Train's.
enum class CheckpointStatus : std::uint8_t {
    committed,          ///< nobody asked for its validation
    pending_validation, ///< waits for validation, or is being validated
    validated,          ///< its metrics include those of the validation
    validation_timeout, ///< the validation took longer than its limit
    validation_failed,  ///< the validation function threw, or its process died
};

/// "committed", "pending_validation", ...
[[nodiscard]] constexpr std::string_view to_string(CheckpointStatus status) noexcept {
    switch (status) {
    case CheckpointStatus::committed:
        return "committed";
    case CheckpointStatus::pending_validation:
        return "pending_validation";
    case CheckpointStatus::validated:
        return "validated";
    case CheckpointStatus::validation_timeout:
        return "validation_timeout";
    case CheckpointStatus::validation_failed:
        break;
    }
    return "validation_failed";
}

/// The status with that name. Throws std::invalid_argument when there is none.
[[nodiscard]] inline CheckpointStatus checkpoint_status(std::string_view name) {
    using enum CheckpointStatus;
    for (const auto status :
         {committed, pending_validation, validated, validation_timeout, validation_failed}) {
        if (to_string(status) == name) {
            return status;
        }
    }
    throw std::invalid_argument("there is no status \"" + std::string(name) + "\"");
}

namespace detail {

/// Throws ConfigError [RT-C17] for a limit that is none.
inline void check_validation_timeout(const std::optional<double>& timeout_s) {
    if (timeout_s && !(*timeout_s > 0)) {
        throw ConfigError("RT-C17", concat("the time limit of a validation is ", *timeout_s,
                                           " s; expected more than 0, or unset for no limit"));
    }
}

} // namespace detail
} // namespace rtrain
