// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of a report; names and defaults follow Ray Train.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/config/config.hpp>

#include <functional>
#include <optional>
#include <string>
#include <variant>

namespace rtrain {

/// Ways to move a reported directory into the run's storage.
enum class CheckpointUploadMode : unsigned char {
    sync,     ///< report() returns once it is stored
    async,    ///< copied in the background; do not change it until the next report has returned
    no_upload ///< already stored in the run's directory, with the same name on all ranks
};

/// Copies a reported directory into the run's directory under the given name, and returns the copy.
using CheckpointUploadFn = std::function<Checkpoint(const Checkpoint&, const std::string& name)>;

/// All ranks pass the same values, except where rank 0's is used.
struct ReportOptions {
    /// Name of the checkpoint's directory; rank 0's is used. Empty: checkpoint_<number>.
    std::string checkpoint_dir_name{};
    /// Applies to a directory; a state is saved by the checkpoint policy.
    CheckpointUploadMode checkpoint_upload_mode = CheckpointUploadMode::sync;
    /// Removes a directory after copying it. Unset: with async only.
    std::optional<bool> delete_local_checkpoint_after_upload{};
    /// Copies a directory instead of rtrain; called on each rank that reports one.
    CheckpointUploadFn checkpoint_upload_fn{};
    /// Validates the checkpoint (TrainerOptions::validation), optionally with a task; rank 0's is
    /// used.
    std::variant<bool, ValidationTask> validation = false;
    /// Added to the checkpoint's metadata, together with TrainerOptions::metadata; rank 0's is
    /// used.
    Config metadata{};
};

/// True if a report requests validation of its checkpoint.
[[nodiscard]] inline bool asks_for_validation(const ReportOptions& options) {
    const bool* const answer = std::get_if<bool>(&options.validation);
    return answer == nullptr || *answer;
}

} // namespace rtrain
