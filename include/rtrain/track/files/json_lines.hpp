// SPDX-License-Identifier: Apache-2.0
/// @file
/// JsonLines: the reports of a run, one line of JSON each, without the configuration that
/// result.json repeats.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/config/tracker.hpp>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace rtrain::storage {
class GrowingFile;
} // namespace rtrain::storage

namespace rtrain::track {

/// Writes each report as a line of JSON into a file in the run's directory.
class JsonLines {
public:
    /// `file` is relative to the run's directory.
    explicit JsonLines(std::string file = "metrics.jsonl") : file_(std::move(file)) {}

    [[nodiscard]] std::string name() const { return file_; }
    [[nodiscard]] std::string output() const { return file_; }

    void start(const RunInfo& info);
    Position rewind(Position position);
    void write(const Line& line);
    void finish() { output_.reset(); }

private:
    std::string file_;
    std::filesystem::path path_;
    std::shared_ptr<storage::GrowingFile> output_; ///< not shared with copies
};

} // namespace rtrain::track

#ifndef RTRAIN_COMPILED
#include <rtrain/track/files/json_lines_definitions.hpp>
#endif
