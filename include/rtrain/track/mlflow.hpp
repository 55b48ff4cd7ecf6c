// SPDX-License-Identifier: Apache-2.0
/// @file
/// MlFlow: the reports of a run on an MLflow server. Numbers are metrics, with the report's number
/// as their step; TrainerOptions::config is the run's parameters. It sends what it has as soon as
/// it can, and notes in the run's directory how far it has come, so a server that is away misses
/// nothing: track/sync.hpp brings it later. Guide: docs/tracking.md.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/track/http_message.hpp>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace rtrain::track {

/// Which server and run, and what is sent there.
struct MlFlowOptions {
    /// http://host:port or https://host of the server; "": MLFLOW_TRACKING_URI.
    std::string uri{};
    /// Made when there is none; "": MLFLOW_EXPERIMENT_NAME, else "Default".
    std::string experiment{};
    std::string run_name{};                    ///< "": RunInfo::name
    std::map<std::string, std::string> tags{}; ///< of the run
    std::string file = "mlflow.json"; ///< which run on the server, and what it has; in the run's
                                      ///< directory
    HttpSender https{}; ///< for an https:// URI: track::https() of <rtrain/track/https.hpp>
    /// Whether what worker.log() notes is shown, as metrics "steps/...".
    bool steps = true;
    /// What is uploaded when the run ends: files and directories in the run's directory, by names
    /// that may hold * and ?, such as "checkpoint_*", or by absolute paths.
    std::vector<std::string> artifacts{"report.html"};
};

/// Shows a run on an MLflow server; see the file's comment.
class MlFlow {
public:
    /// Throws ConfigError: [RT-V60] for a URI that cannot be one, [RT-V66] for https:// without
    /// `https`.
    explicit MlFlow(MlFlowOptions options = {});
    /// Whether `file` is one that a tracker of this sort has left.
    [[nodiscard]] static bool has_left(const std::filesystem::path& file);
    /// For a run that is not under way: goes on as the tracker that has left `file` would. What has
    /// failed was killed. `uri`: the server that the caller names; else credentials go only to
    /// MLFLOW_TRACKING_URI, never to a server that only the file names. Throws as the constructor
    /// does.
    [[nodiscard]] static MlFlow by_note(std::string file, HttpSender https, bool was_killed,
                                        std::string uri = {});
    MlFlow(MlFlow&&) noexcept;
    MlFlow& operator=(MlFlow&&) noexcept;
    ~MlFlow();

    [[nodiscard]] std::string name() const { return "MLflow"; }
    [[nodiscard]] std::string output() const { return options_.file; }

    void start(const RunInfo& info);
    Position rewind(Position position);
    void write(const Line& line);
    /// Throws Error [RT-V61] to [RT-V64]; what was not sent is sent by the next call.
    void flush();
    void finish(Ending ending);

private:
    struct Sender;

    MlFlowOptions options_;
    bool by_note_ = false; ///< the note in `file` has the options
    bool was_killed_ = false;
    std::unique_ptr<Sender> sender_;
};

} // namespace rtrain::track

#ifndef RTRAIN_COMPILED
#include <rtrain/track/mlflow_definitions.hpp>
#endif
