// SPDX-License-Identifier: Apache-2.0
/// @file
/// Behind the door comet.hpp.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/format/zip_writer.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/storage/file/growing_file.hpp>
#include <rtrain/track/offline/comet.hpp>
#include <rtrain/track/offline/comet_format.hpp>
#include <rtrain/track/offline/offline_note.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace rtrain::track {

struct Comet::Archive {
    static constexpr const char* sort = "comet";
    static constexpr std::size_t id_letters = 32;

    std::filesystem::path directory;
    CometDescription description;
    double start_s;
    std::string run_name;
    Config config;
    CometMessages messages{};
    std::unique_ptr<storage::GrowingFile> output{};
    double last_s = 0; ///< time of the last line

    [[nodiscard]] std::filesystem::path messages_file() const {
        return directory / comet_messages_file;
    }
    [[nodiscard]] std::filesystem::path zip() const {
        return directory / (description.key + ".zip");
    }

    void begin() {
        output.reset();
        storage::remove_all(zip()); // it contains superseded reports
        messages = {};
        last_s = start_s;
        storage::replace_file(messages_file(),
                              messages.run_name(run_name) + messages.parameters(config, last_s));
        output = std::make_unique<storage::GrowingFile>(messages_file());
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
    CometDescription description{
        .key = note.id(),
        .project = note.option("project", options_.project, "COMET_PROJECT_NAME"),
        .workspace = note.option("workspace", options_.workspace, "COMET_WORKSPACE"),
        .tags = note.tags(options_.tags)};
    const std::string run_name =
        note.option("run_name", options_.run_name, "COMET_EXPERIMENT_NAME", info.name);
    note.write();
    std::ranges::transform(description.tags, description.tags.begin(), in_one_line);
    archive_ = std::make_unique<Archive>(Archive{directory, std::move(description),
                                                 static_cast<double>(note.start_s()), run_name,
                                                 info.config});
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
        zip.add(comet_description_file,
                comet_description(archive_->description, archive_->start_s, archive_->last_s,
                                  ending == Ending::failed));
        zip.add_file(comet_messages_file, archive_->messages_file());
        zip.finish();
    });
    archive_->output.reset();
    storage::remove_all(archive_->messages_file());
}

} // namespace rtrain::track
