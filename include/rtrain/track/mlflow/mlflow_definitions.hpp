// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door mlflow.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/console.hpp>
#include <rtrain/track/lines/option.hpp>
#include <rtrain/track/mlflow/mlflow.hpp>
#include <rtrain/track/mlflow/mlflow_batches.hpp>
#include <rtrain/track/mlflow/mlflow_entries.hpp>
#include <rtrain/track/mlflow/mlflow_note.hpp>
#include <rtrain/track/mlflow/mlflow_server.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include <errno.h> // program_invocation_name

namespace rtrain::track {

struct MlFlow::Sender {
    static constexpr std::size_t most_kept = 10'000; ///< metrics of lines; a single line may have
                                                     ///< more
    static constexpr const char* id_tag = MlFlowBatches::id_tag;
    static constexpr const char* directory_tag = "rtrain.directory";
    static constexpr const char* running = "RUNNING";

    RunInfo run;
    std::filesystem::path file;
    MlFlowNote note;
    MlFlowServer server;
    bool by_note = false;                 ///< the run is not running
    std::vector<mlflow::Entry> metrics{}; ///< unsent ones of lines up to `last`
    Position last{};

    void save() const { note.write(file); }

    /// Milliseconds since 1970.
    static std::int64_t now() {
        using namespace std::chrono;
        return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
    }

    static std::string new_id() {
        std::random_device random;
        return rtrain::detail::concat(std::hex, random(), '-', random(), '-', random());
    }

    /// Data on the server cannot be removed, so a new MLflow run gets the whole log.
    void begin_anew() {
        if (!note.run_id.empty()) {
            note.old.push_back(note.run_id);
        }
        note = {.uri = note.uri,
                .experiment = note.experiment,
                .run_name = note.run_name,
                .tags = note.tags,
                .id = new_id(),
                .old = note.old,
                .steps = note.steps,
                .artifacts = note.artifacts};
        save();
    }

    /// Ensures that the server has the run and everything except its metrics.
    void prepare() {
        if (note.run_id.empty()) {
            make_run();
        }
        while (!note.old.empty()) {
            delete_old(note.old.back());
            note.old.pop_back();
            save();
        }
        if (!note.has_parameters) {
            send_parameters();
        }
        if (note.status != running && !by_note) {
            (void)server.post("runs/update", {{"run_id", note.run_id}, {"status", running}});
            note.status = running;
            save();
        }
    }

    /// A note from elsewhere may name any run: sync() deletes only runs of this directory.
    void delete_old(const std::string& old) {
        if (by_note) {
            std::error_code ignored;
            const auto tags = tags_of(server.run(old).value_or(Config{}));
            const auto its = tags.find(directory_tag);
            if (its == tags.end() ||
                std::filesystem::weakly_canonical(its->second, ignored) != run.directory) {
                console::warn("MLflow's run %s is not deleted: it was not created from %s",
                              mlflow::printable(old).c_str(), run.location.c_str());
                return;
            }
        }
        server.delete_run(old);
    }

    /// If a process was killed or timed out in create_run(), the run may exist.
    void make_run() {
        const std::string experiment = server.experiment(note.experiment);
        if (note.is_asked_for) {
            note.run_id = server.find_run(experiment, id_tag, note.id).value_or("");
        }
        if (note.run_id.empty()) {
            note.is_asked_for = true;
            save();
            note.run_id = server.create_run(description(experiment));
        }
        note.status = running;
        save();
    }

    [[nodiscard]] Config description(const std::string& experiment) {
        std::map<std::string, std::string> tags{{"mlflow.source.name", program_invocation_name},
                                                {"mlflow.source.type", "LOCAL"},
                                                {directory_tag, run.location}};
        if (const char* const user = std::getenv("USER")) {
            tags["mlflow.user"] = user;
        }
        std::string name = note.run_name.empty() ? run.name : note.run_name;
        std::int64_t start = now();
        if (!note.old.empty()) {
            take_over(note.old.back(), tags, name, start);
        }
        for (const auto& [key, value] : note.tags) {
            tags[key] = value;
        }
        tags[id_tag] = note.id;
        boost::json::array all_tags;
        for (const auto& [key, value] : tags) {
            all_tags.push_back(mlflow::tag(key, value));
        }
        return {{"experiment_id", experiment},
                {"run_name", name},
                {"start_time", start},
                {"tags", all_tags}};
    }

    /// Copies the user's changes of the run that is replaced.
    void take_over(const std::string& old, std::map<std::string, std::string>& tags,
                   std::string& name, std::int64_t& start) {
        const Config there = server.run(old).value_or(Config{});
        const Config info = object_in(there, "info");
        if (const auto* const value = info.if_contains("run_name"); value && value->is_string()) {
            name = value->get_string();
        }
        if (const auto* const value = info.if_contains("start_time"); value && value->is_int64()) {
            start = value->get_int64();
        }
        for (const auto& [key, value] : tags_of(there)) {
            tags[key] = value;
        }
        tags.erase("mlflow.runName");
        tags.erase(MlFlowBatches::refused_tag);
    }

    [[nodiscard]] static std::map<std::string, std::string> tags_of(const Config& there) {
        std::map<std::string, std::string> tags;
        const Config data = object_in(there, "data");
        const auto* const all = data.if_contains("tags");
        for (const auto& tag :
             all != nullptr && all->is_array() ? all->get_array() : boost::json::array()) {
            const auto* const pair = tag.if_object();
            const auto* const key = pair ? pair->if_contains("key") : nullptr;
            const auto* const value = pair ? pair->if_contains("value") : nullptr;
            if (key && key->is_string() && value && value->is_string()) {
                tags[std::string(key->get_string())] = value->get_string();
            }
        }
        return tags;
    }

    void send_parameters() {
        auto parameters = mlflow::parameters_of(run.config);
        MlFlowBatches(server, note, MlFlowBatches::parameters).send(parameters, false);
        note.has_parameters = true;
        save();
    }

    void send_metrics() {
        if (note.sent == last) {
            return;
        }
        const bool in_doubt = note.on_its_way != note.sent;
        if (note.on_its_way.iteration < last.iteration || note.on_its_way.step < last.step) {
            note.on_its_way = last;
            save();
        }
        MlFlowBatches(server, note, MlFlowBatches::metrics).send(metrics, in_doubt);
        note.sent = last;
        save();
    }

    /// Uploads artifacts that the server does not have, or that have changed.
    void send_artifacts() {
        auto [missing, outside] = mlflow::artifacts_of(run.directory, note.artifacts, !by_note);
        if (!outside.empty()) {
            console::warn(
                "MLflow artifacts must be inside the run's directory; %zu are outside and "
                "omitted, the first is %s",
                outside.size(), mlflow::printable(outside.front().string()).c_str());
        }
        std::erase_if(missing, [this](const auto& item) {
            const auto& [name, path] = item;
            return note.stored.contains(name) && note.stored.at(name) == mlflow::mark_of(path);
        });
        if (missing.empty()) {
            return;
        }
        const auto root = server.artifact_path(note.run_id);
        if (!root) {
            console::warn("MLflow has no artifacts of this run: its server does not accept uploads "
                          "(mlflow server --serve-artifacts); the files are in %s",
                          run.location.c_str());
            return;
        }
        for (const auto& [name, path] : missing) {
            std::string mark = mlflow::mark_of(path); // before the upload reads it
            server.put(*root + '/' + name, path);
            note.stored[name] = std::move(mark);
            save();
        }
    }
};

namespace internal {

inline constexpr const char* uri_variable = "MLFLOW_TRACKING_URI";

/// Called before anything is sent.
RTRAIN_DOOR void show_target(const MlFlowServer& server, const MlFlowNote& note, bool by_note) {
    const std::string uri = server.url().text();
    if (by_note) {
        console::say("MLflow: sending missing data to %s, experiment \"%s\"%s", uri.c_str(),
                     mlflow::printable(note.experiment).c_str(),
                     server.withholds_credentials()
                         ? ", without the environment's credentials, which go only to a server "
                           "that you name (MLFLOW_TRACKING_URI)"
                         : "");
    }
    if (server.sends_credentials() && !server.url().encrypted && !server.url().is_loopback) {
        console::warn("MLflow's credentials are sent to %s unencrypted; use https://", uri.c_str());
    }
}

} // namespace internal

RTRAIN_DOOR MlFlow::MlFlow(MlFlowOptions options) : options_(std::move(options)) {
    const std::string uri = option_or(options_.uri, internal::uri_variable, "");
    if (!uri.empty()) {
        (void)MlFlowServer(parse_url(uri), options_.https, true);
    }
}
RTRAIN_DOOR MlFlow::MlFlow(MlFlow&&) noexcept = default;
RTRAIN_DOOR MlFlow& MlFlow::operator=(MlFlow&&) noexcept = default;
RTRAIN_DOOR MlFlow::~MlFlow() = default;

RTRAIN_DOOR bool MlFlow::has_left(const std::filesystem::path& file) {
    std::string begin(MlFlowNote::begin.size(), '\0');
    std::ifstream(file, std::ios::binary)
        .read(begin.data(), static_cast<std::streamsize>(begin.size()));
    return begin == MlFlowNote::begin;
}

RTRAIN_DOOR MlFlow MlFlow::by_note(std::string file, HttpSender https, bool was_killed,
                                   std::string uri) {
    MlFlow tracker({.uri = std::move(uri), .file = std::move(file), .https = std::move(https)});
    tracker.by_note_ = true;
    tracker.was_killed_ = was_killed;
    return tracker;
}

RTRAIN_DOOR void MlFlow::start(const RunInfo& info) {
    const auto file = info.directory / options_.file;
    MlFlowNote note = MlFlowNote::read(file).value_or(MlFlowNote{.id = Sender::new_id()});
    const std::string named = option_or(options_.uri, internal::uri_variable, "");
    MlFlowServer server(parse_url(named.empty() ? note.uri : named), options_.https,
                        !named.empty());
    note.uri = server.url().text();
    note.experiment = option_or(options_.experiment, "MLFLOW_EXPERIMENT_NAME",
                                note.experiment.empty() ? "Default" : note.experiment);
    note.run_name = options_.run_name.empty() ? note.run_name : options_.run_name;
    note.tags = options_.tags.empty() ? note.tags : options_.tags;
    if (!by_note_) {
        note.steps = options_.steps;
        note.artifacts = options_.artifacts;
    }
    internal::show_target(server, note, by_note_);
    storage::create_directories(file.parent_path());
    sender_ = std::make_unique<Sender>(Sender{
        .run = info, .file = file, .note = note, .server = std::move(server), .by_note = by_note_});
    sender_->save();
}

/// Does not contact the server, so a rewind needs no retry.
RTRAIN_DOOR Position MlFlow::rewind(Position position) {
    MlFlowNote& note = sender_->note;
    if (note.on_its_way.iteration > position.iteration || note.on_its_way.step > position.step) {
        sender_->begin_anew();
    }
    sender_->metrics.clear();
    sender_->last = note.sent;
    return note.sent;
}

RTRAIN_DOOR void MlFlow::write(const Line& line) {
    if (line.is_step && !sender_->note.steps) {
        return;
    }
    if (sender_->metrics.size() >= Sender::most_kept) {
        flush();
    }
    for (mlflow::Entry& metric : mlflow::metrics_of(line)) {
        if (!sender_->note.refused.contains(
                MlFlowBatches::title(MlFlowBatches::metrics, metric.name))) {
            sender_->metrics.push_back(std::move(metric));
        }
    }
    (line.is_step ? sender_->last.step : sender_->last.iteration) = line.number;
}

RTRAIN_DOOR void MlFlow::flush() {
    sender_->prepare();
    sender_->send_metrics();
}

/// A paused run keeps its status.
RTRAIN_DOOR void MlFlow::finish(Ending ending) {
    MlFlowNote& note = sender_->note;
    const std::string status = ending == Ending::finished ? "FINISHED"
                               : ending == Ending::paused ? note.status
                               : was_killed_              ? "KILLED"
                                                          : "FAILED";
    if (status != note.status) {
        (void)sender_->server.post(
            "runs/update",
            {{"run_id", note.run_id}, {"status", status}, {"end_time", Sender::now()}});
        note.status = status;
        sender_->save();
    }
    if (ending != Ending::paused) {
        sender_->send_artifacts();
    }
}

} // namespace rtrain::track
