// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door comet.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/format/zip_writer.hpp>
#include <rtrain/storage/file.hpp>
#include <rtrain/storage/growing_file.hpp>
#include <rtrain/track/comet.hpp>
#include <rtrain/track/comet_messages.hpp>
#include <rtrain/track/offline_note.hpp>

#include <boost/json/array.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::track {

struct Comet::Archive {
    static constexpr const char* sort = "comet";
    static constexpr std::size_t id_letters = 32;
    static constexpr const char* messages_name = "messages.json"; ///< also in the archive

    std::filesystem::path directory;
    OfflineNote note;
    std::string project;
    std::string workspace;
    std::string run_name;
    std::vector<std::string> tags;
    Config config;
    CometMessages messages{};
    std::unique_ptr<storage::GrowingFile> output{};
    double last_s = 0; ///< time of the last line

    [[nodiscard]] std::filesystem::path messages_file() const { return directory / messages_name; }
    [[nodiscard]] std::filesystem::path zip() const { return directory / (note.id() + ".zip"); }

    void begin() {
        output.reset();
        storage::remove_all(zip()); // it contains superseded reports
        messages = {};
        last_s = static_cast<double>(note.start_s());
        storage::replace_file(messages_file(),
                              messages.run_name(run_name) + messages.parameters(config, last_s));
        output = std::make_unique<storage::GrowingFile>(messages_file());
    }

    [[nodiscard]] std::string description(bool has_failed) const {
        const auto or_null = [](const std::string& text) {
            return text.empty() ? boost::json::value(nullptr) : boost::json::value(text);
        };
        const auto start_s = static_cast<double>(note.start_s());
        return json::serialize(
            Config{{"offline_id", note.id()},
                   {"project_name", or_null(project)},
                   {"workspace", or_null(workspace)},
                   {"start_time", CometMessages::milliseconds(start_s)},
                   {"stop_time", CometMessages::milliseconds(std::max(start_s, last_s))},
                   {"tags", boost::json::array(tags.begin(), tags.end())},
                   {"resume_strategy", "create"},
                   {"customer_error_reported", has_failed},
                   {"customer_error_message", or_null(has_failed ? "the run has failed" : "")}});
    }
};

RTRAIN_DOOR Comet::Comet(CometOptions options) : options_(std::move(options)) {}
RTRAIN_DOOR Comet::Comet(Comet&&) noexcept = default;
RTRAIN_DOOR Comet& Comet::operator=(Comet&&) noexcept = default;
RTRAIN_DOOR Comet::~Comet() = default;

RTRAIN_DOOR bool Comet::has_left(const std::filesystem::path& directory) {
    return OfflineNote::is_in(directory, Archive::sort);
}

RTRAIN_DOOR void Comet::start(const RunInfo& info) {
    const auto directory = info.directory / options_.directory;
    storage::create_directories(directory);
    OfflineNote note(directory, Archive::sort, Archive::id_letters);
    const std::string project = note.option("project", options_.project, "COMET_PROJECT_NAME");
    const std::string workspace = note.option("workspace", options_.workspace, "COMET_WORKSPACE");
    const std::string run_name =
        note.option("run_name", options_.run_name, "COMET_EXPERIMENT_NAME", info.name);
    auto tags = note.tags(options_.tags);
    note.write();
    std::transform(tags.begin(), tags.end(), tags.begin(), in_one_line);
    archive_ = std::make_unique<Archive>(
        Archive{directory, std::move(note), project, workspace, run_name, tags, info.config});
}

RTRAIN_DOOR Position Comet::rewind(Position /*position*/) {
    archive_->begin();
    return {};
}

RTRAIN_DOOR void Comet::write(const Line& line) {
    archive_->output->append(archive_->messages.metrics(line));
    archive_->last_s = std::max(archive_->last_s, line.time_s);
}

RTRAIN_DOOR void Comet::finish(Ending ending) {
    storage::replace_file_by(archive_->zip(), [&](storage::OutputFile& output) {
        format::ZipWriter zip(output);
        zip.add("experiment.json", archive_->description(ending == Ending::failed));
        zip.add_file(Archive::messages_name, archive_->messages_file());
        zip.finish();
    });
    archive_->output.reset();
    storage::remove_all(archive_->messages_file());
}

} // namespace rtrain::track
