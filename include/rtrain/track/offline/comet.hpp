// SPDX-License-Identifier: Apache-2.0
/// @file
/// Comet, experimental: writes the reports of a run as a Comet offline archive, for `comet upload`.
/// It contacts no server and needs no API key. Guide: docs/tracking.md.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/tracker.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace rtrain::track {

/// Not supported: images and other assets, system metrics, terminal output, and archives larger
/// than 4 GiB (RT-S19).
struct CometOptions {
    std::string project{};           ///< "": COMET_PROJECT_NAME, else "Uncategorized" on the server
    std::string workspace{};         ///< "": COMET_WORKSPACE, else the default of `comet upload`
    std::string run_name{};          ///< "": COMET_EXPERIMENT_NAME, else RunInfo::name
    std::vector<std::string> tags{}; ///< of the experiment
    std::string directory = "comet"; ///< relative to the run's directory
};

/// Writes `<key>.zip` when the run ends or pauses, and `messages.json` until then.
class Comet {
public:
    explicit Comet(CometOptions options = {});
    /// True if `directory` was written by this tracker.
    [[nodiscard]] static bool has_left(const std::filesystem::path& directory);
    Comet(Comet&&) noexcept;
    Comet& operator=(Comet&&) noexcept;
    ~Comet();

    [[nodiscard]] std::string name() const { return "Comet's " + options_.directory; }
    [[nodiscard]] std::string output() const { return options_.directory; }

    /// Throws Error [RT-V70] if the note with the run's key is damaged.
    void start(const RunInfo& info);
    Position rewind(Position position);
    void write(const Line& line);
    /// Throws StorageError [RT-S19] if the archive would exceed 4 GiB.
    void finish(Ending ending);

private:
    struct Archive;

    CometOptions options_;
    std::unique_ptr<Archive> archive_;
};

} // namespace rtrain::track

#ifndef RTRAIN_COMPILED
#include <rtrain/track/offline/comet_definitions.hpp>
#endif
