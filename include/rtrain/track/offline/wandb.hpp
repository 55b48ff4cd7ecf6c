// SPDX-License-Identifier: Apache-2.0
/// @file
/// Wandb, experimental: writes the reports of a run as a Weights & Biases offline run, for
/// `wandb sync`. It contacts no server and needs no API key. Guide: docs/tracking.md.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/tracker.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace rtrain::track {

/// Not supported: worker.log(), artifacts, images and other media, system metrics, and terminal
/// output.
struct WandbOptions {
    std::string project{};  ///< "": WANDB_PROJECT, else the one that `wandb sync --project` names
    std::string entity{};   ///< "": WANDB_ENTITY, else the default of `wandb sync`
    std::string run_name{}; ///< "": WANDB_NAME, else RunInfo::name
    std::string group{};    ///< "": WANDB_RUN_GROUP, else none
    std::string notes{};    ///< "": WANDB_NOTES, else none
    std::vector<std::string> tags{}; ///< of the run
    std::string directory = "wandb"; ///< relative to the run's directory
};

/// Writes `offline-run-<time>-<id>/run-<id>.wandb`, one file for all starts of a run, because W&B
/// does not join parts: each start rewrites it from result.json.
class Wandb {
public:
    explicit Wandb(WandbOptions options = {});
    /// True if `directory` was written by this tracker.
    [[nodiscard]] static bool has_left(const std::filesystem::path& directory);
    Wandb(Wandb&&) noexcept;
    Wandb& operator=(Wandb&&) noexcept;
    ~Wandb();

    [[nodiscard]] std::string name() const { return "W&B's " + options_.directory; }
    [[nodiscard]] std::string output() const { return options_.directory; }

    /// Throws Error [RT-V70] if the note with the run's id is damaged.
    void start(const RunInfo& info);
    Position rewind(Position position);
    void write(const Line& line);
    void flush();
    void finish(Ending ending);

private:
    struct File;

    WandbOptions options_;
    std::unique_ptr<File> file_;
};

} // namespace rtrain::track

#ifndef RTRAIN_COMPILED
#include <rtrain/track/offline/wandb_definitions.hpp>
#endif
