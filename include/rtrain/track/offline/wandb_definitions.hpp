// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door wandb.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/process/os/machine.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/growing_file.hpp>
#include <rtrain/track/offline/offline_note.hpp>
#include <rtrain/track/offline/wandb.hpp>
#include <rtrain/track/offline/wandb_format.hpp>
#include <rtrain/version.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace rtrain::track {

struct Wandb::File {
    static constexpr const char* sort = "wandb";
    static constexpr std::size_t id_letters = 8;

    std::filesystem::path path;
    wandb::RunShown shown;
    Config config;
    std::unique_ptr<storage::GrowingFile> output{};
    std::uint64_t records = 0;                    ///< in the file
    std::map<std::string, std::string> summary{}; ///< changed values since the last summary
    double last_s = 0;                            ///< time of the last report

    void append(wandb::Kind kind, const wandb::Message& content) {
        output->append(wandb::in_parts(wandb::record(records + 1, kind, content), output->size()));
        ++records;
    }

    /// Resets the file to the run's description.
    void begin() {
        output.reset();
        records = 0;
        summary.clear();
        last_s = static_cast<double>(shown.start_s);
        std::string text(wandb::file_begin);
        for (const auto& [kind, content] :
             {std::pair(wandb::Kind::header, wandb::header("rtrain-" RTRAIN_VERSION)),
              std::pair(wandb::Kind::run, wandb::run(shown, config))}) {
            text += wandb::in_parts(wandb::record(++records, kind, content), text.size());
        }
        storage::create_directories(path.parent_path());
        storage::replace_file(path, text);
        for (const char* const mark : wandb::upload_marks) { // of an earlier version
            storage::remove_all(path.string() + mark);
        }
        output = std::make_unique<storage::GrowingFile>(path);
    }
};

RTRAIN_DOOR Wandb::Wandb(WandbOptions options) : options_(std::move(options)) {}
RTRAIN_DOOR Wandb::Wandb(Wandb&&) noexcept = default;
RTRAIN_DOOR Wandb& Wandb::operator=(Wandb&&) noexcept = default;
RTRAIN_DOOR Wandb::~Wandb() = default;

RTRAIN_DOOR bool Wandb::has_left(const std::filesystem::path& directory) {
    return OfflineNote::is_in(directory, File::sort);
}

RTRAIN_DOOR void Wandb::start(const RunInfo& info) {
    const auto directory = info.directory / options_.directory;
    storage::create_directories(directory);
    OfflineNote note(directory, File::sort, File::id_letters);
    wandb::RunShown shown{.id = note.id(),
                          .entity = note.option("entity", options_.entity, "WANDB_ENTITY"),
                          .project = note.option("project", options_.project, "WANDB_PROJECT"),
                          .group = note.option("group", options_.group, "WANDB_RUN_GROUP"),
                          .name =
                              note.option("run_name", options_.run_name, "WANDB_NAME", info.name),
                          .notes = note.option("notes", options_.notes, "WANDB_NOTES"),
                          .tags = note.tags(options_.tags),
                          .host = storage::host_name(),
                          .start_s = note.start_s()};
    note.write();
    const auto path = directory / wandb::file_of(shown);
    file_ = std::make_unique<File>(File{path, std::move(shown), info.config});
}

RTRAIN_DOOR Position Wandb::rewind(Position position) {
    file_->begin();
    return {.iteration = 0, .step = position.step};
}

RTRAIN_DOOR void Wandb::write(const Line& line) {
    if (line.is_step) {
        return;
    }
    wandb::Message items;
    wandb::visit_items(line, static_cast<double>(file_->shown.start_s),
                       [&](const std::string& name, const std::string& value) {
                           items.bytes(1, wandb::item(name, value));
                           file_->summary[name] = value;
                       });
    file_->append(wandb::Kind::history, wandb::history(std::move(items), line.number));
    file_->last_s = line.time_s;
}

/// Appends the values of W&B's tables, which it does not read from the history.
RTRAIN_DOOR void Wandb::flush() {
    if (file_->summary.empty()) {
        return;
    }
    file_->append(wandb::Kind::summary, wandb::summary(file_->summary));
    file_->summary.clear();
}

/// A paused run has not ended.
RTRAIN_DOOR void Wandb::finish(Ending ending) {
    if (ending == Ending::paused) {
        return;
    }
    const double took = std::max(0.0, file_->last_s - static_cast<double>(file_->shown.start_s));
    file_->append(wandb::Kind::exit, wandb::ending(ending == Ending::failed, took));
}

} // namespace rtrain::track
