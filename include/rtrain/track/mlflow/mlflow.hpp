// SPDX-License-Identifier: Apache-2.0
/// @file
/// MlFlow: sends the reports of a run to an MLflow server. Numbers are metrics, with the report's
/// number as their step; TrainerOptions::config is the run's parameters. It sends lines as soon as
/// possible, and records its progress in the run's directory: track/sync.hpp sends the rest after
/// an outage. Guide: docs/tracking.md.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/track/http/http_message.hpp>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace rtrain::track {

/// The server and run, and the data to send.
struct MlFlowOptions {
    /// http://host:port or https://host of the server; "": MLFLOW_TRACKING_URI.
    std::string uri{};
    /// Created if missing; "": MLFLOW_EXPERIMENT_NAME, else "Default".
    std::string experiment{};
    std::string run_name{};                    ///< "": RunInfo::name
    std::map<std::string, std::string> tags{}; ///< of the run
    std::string file = "mlflow.json"; ///< records the run on the server and its progress; in the
                                      ///< run's directory
    HttpSender https{}; ///< for an https:// URI: track::https() of <rtrain/track/https.hpp>
    /// True: data of worker.log() is sent as metrics "steps/...".
    bool steps = true;
    /// Uploads at the end of the run: files and directories in the run's directory, as patterns
    /// with * and ?, such as "checkpoint_*", or absolute paths.
    std::vector<std::string> artifacts{"report.html"};
};

/// Sends a run to an MLflow server; see the file's comment.
class MlFlow {
public:
    /// Throws ConfigError: [RT-V60] for an invalid URI, [RT-V66] for https:// without `https`.
    explicit MlFlow(MlFlowOptions options = {});
    /// True if `file` was written by this tracker.
    [[nodiscard]] static bool has_left(const std::filesystem::path& file);
    /// For a run that is not running: continues as the tracker that wrote `file`. `was_killed`: a
    /// failed run was killed. `uri`: the server that the caller names; otherwise credentials go
    /// only to MLFLOW_TRACKING_URI, never to a server that only the file names. Throws like the
    /// constructor.
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
    /// Throws Error [RT-V61] to [RT-V64]; the next call sends the rest.
    void flush();
    void finish(Ending ending);

private:
    struct Sender;

    MlFlowOptions options_;
    bool by_note_ = false; ///< the options come from the note in `file`
    bool was_killed_ = false;
    std::unique_ptr<Sender> sender_;
};

} // namespace rtrain::track

#ifndef RTRAIN_COMPILED
#include <rtrain/track/mlflow/mlflow_definitions.hpp>
#endif
