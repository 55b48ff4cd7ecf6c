// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a report can ask for; names and defaults follow Ray Train.
#pragma once

#include <rtrain/checkpoint/checkpoint.hpp>
#include <rtrain/checkpoint/validation.hpp>
#include <rtrain/config/config.hpp>

#include <functional>
#include <optional>
#include <string>
#include <variant>

namespace rtrain {

/// How a reported directory gets into the run's storage.
enum class CheckpointUploadMode : unsigned char {
    sync,     ///< report() returns when it is there
    async,    ///< it is copied in the background; leave it alone until the next report has returned
    no_upload ///< it is there: a directory in the run's own, of the same name on all ranks
};

/// Copies a reported directory into the run's directory, under the name given, and returns it
/// there.
using CheckpointUploadFn = std::function<Checkpoint(const Checkpoint&, const std::string& name)>;

/// All ranks give the same, except where rank 0's is said to count.
struct ReportOptions {
    /// Name of the checkpoint's directory; rank 0's counts. Empty: checkpoint_<number>.
    std::string checkpoint_dir_name{};
    /// For a directory; a state is saved as the checkpoint policy does it.
    CheckpointUploadMode checkpoint_upload_mode = CheckpointUploadMode::sync;
    /// Whether a directory is removed when it has been copied. Unset: with async only.
    std::optional<bool> delete_local_checkpoint_after_upload{};
    /// Copies a directory instead of rtrain; called on each rank that gives one.
    CheckpointUploadFn checkpoint_upload_fn{};
    /// Whether the checkpoint is validated (TrainerOptions::validation), and with what task; rank
    /// 0's counts.
    std::variant<bool, ValidationTask> validation = false;
    /// Becomes the checkpoint's metadata, together with TrainerOptions::metadata; rank 0's counts.
    Config metadata{};
};

/// Whether a report wants its checkpoint validated.
[[nodiscard]] inline bool asks_for_validation(const ReportOptions& options) {
    const bool* const answer = std::get_if<bool>(&options.validation);
    return answer == nullptr || *answer;
}

} // namespace rtrain
