// SPDX-License-Identifier: Apache-2.0
/// @file
/// Csv: the reports of a run as a CSV table, in addition to result.json. Every run has one,
/// progress.csv.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/config/tracker.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/storage/file/file.hpp>
#include <rtrain/track/lines/log_reader.hpp>
#include <rtrain/track/lines/metrics.hpp>
#include <rtrain/track/lines/reported_image.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rtrain::track {

/// Nested metrics become columns "a/b"; TrainerOptions::config is omitted. RFC 4180.
class Csv {
public:
    /// `file` is relative to the run's directory.
    explicit Csv(std::string file) : file_(std::move(file)) {}

    [[nodiscard]] std::string name() const { return file_; }
    [[nodiscard]] std::string output() const { return file_; }

    void start(const RunInfo& info) { directory_ = info.directory; }

    Position rewind(Position position) {
        columns_.clear();
        rewrite(position.iteration);
        return position;
    }

    void write(const Line& line) {
        if (line.is_step) {
            return;
        }
        if (add_columns(line.values) || !whole_) {
            rewrite(line.number);
            return;
        }
        whole_ = false;
        storage::OutputFile table(directory_ / file_, storage::OutputFile::Mode::append);
        table.write(row_of(line.values));
        whole_ = true;
    }

    void finish() {}

private:
    /// Calls `visit(column, text)` for each cell of the line.
    template <class Visit>
    static void visit_cells(const Config& line, Visit&& visit) {
        const auto is_shown = [](std::string_view name) { return name != "config"; };
        visit_leaves_if(line, is_shown,
                        [&](const std::string& name, const boost::json::value& value) {
                            if (is_image(value)) {
                                return;
                            }
                            visit(name, value.is_string() ? std::string(value.get_string())
                                        : value.is_null() ? ""
                                                          : json::serialize(value));
                        });
    }

    /// Adds the line's columns. True if some are not in the file yet.
    bool add_columns(const Config& line) {
        const std::size_t before = columns_.size();
        visit_cells(line, [&](const std::string& name, const std::string& /*text*/) {
            columns_.try_emplace(name, columns_.size());
        });
        return columns_.size() > before;
    }

    [[nodiscard]] std::string head() const {
        std::vector<std::string> names(columns_.size());
        for (const auto& [name, place] : columns_) {
            names[place] = name;
        }
        return names.empty() ? "" : joined(names);
    }

    [[nodiscard]] std::string row_of(const Config& line) const {
        std::vector<std::string> cells(columns_.size());
        visit_cells(line, [&](const std::string& name, std::string text) {
            cells[columns_.at(name)] = std::move(text);
        });
        return joined(cells);
    }

    static std::string joined(const std::vector<std::string>& cells) {
        std::string row;
        for (const std::string& cell : cells) {
            row += (&cell == cells.data() ? "" : ",") + quoted(cell);
        }
        return row + "\r\n";
    }

    static std::string quoted(const std::string& text) {
        if (text.find_first_of(",\"\r\n") == std::string::npos) {
            return text;
        }
        std::string result = "\"";
        for (const char c : text) {
            result += c == '"' ? "\"\"" : std::string(1, c);
        }
        return result + '"';
    }

    /// Ray fixes the columns with the first row and loses later metrics. Here the file is rewritten
    /// when a new metric appears, and also after a failed append.
    void rewrite(std::int64_t iteration) {
        whole_ = false;
        visit_reports(iteration, [&](const Config& report) { add_columns(report); });
        const auto write = [&](storage::OutputFile& table) {
            std::string text = head();
            visit_reports(iteration, [&](const Config& report) {
                text += row_of(report);
                if (text.size() > part_size) {
                    table.write(std::exchange(text, {}));
                }
            });
            table.write(text);
        };
        constexpr bool durably = false; // the next start rebuilds it from result.json
        storage::replace_file_by(directory_ / file_, write, durably);
        whole_ = true;
    }

    /// Visits the reports up to `iteration` in result.json.
    template <class Visit>
    void visit_reports(std::int64_t iteration, Visit&& visit) const {
        const auto log = directory_ / results_file;
        if (iteration == 0 || !std::filesystem::exists(log)) {
            return;
        }
        LogReader lines(log);
        while (const auto text = lines.line()) {
            const Config report = json::parse(*text).as_object();
            if (number_of(report) > iteration) {
                return;
            }
            visit(report);
            lines.pass();
        }
    }

    static constexpr std::size_t part_size = std::size_t{1} << 20;

    std::string file_;
    std::filesystem::path directory_;
    std::unordered_map<std::string, std::size_t> columns_; ///< name to position in a row
    bool whole_ = false;                                   ///< the file has all reports so far
};

} // namespace rtrain::track
