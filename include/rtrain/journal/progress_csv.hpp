// SPDX-License-Identifier: Apache-2.0
/// @file
/// ProgressCsv: the reports of a run as a table, progress.csv, beside result.json.
#pragma once

#include <rtrain/base/json.hpp>
#include <rtrain/config/config.hpp>
#include <rtrain/journal/log_files.hpp>
#include <rtrain/journal/observer.hpp>
#include <rtrain/journal/report_lines.hpp>
#include <rtrain/storage/file.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::track {

/// What one report could not be added with, the next one writes anew from result.json.
class ProgressCsv : public Observer {
public:
    [[nodiscard]] std::string name() const override { return progress_file; }

    void started(const Started& event) override {
        directory_ = event.logs;
        columns_.clear();
        rewrite(event.iteration);
    }

    void reported(const Reported& event) override {
        if (add_columns(event.line) || !whole_) {
            rewrite(number_of(event.line));
            return;
        }
        whole_ = false;
        storage::OutputFile progress(directory_ / progress_file, storage::OutputFile::Mode::append);
        progress.write(row_of(event.line));
        whole_ = true;
    }

private:
    using Cells = std::vector<std::pair<std::string, std::string>>;

    /// Nested metrics become columns "a/b".
    static void flatten(const Config& object, const std::string& prefix, Cells& cells) {
        for (const auto& item : object) {
            const std::string name = prefix + std::string(item.key());
            if (prefix.empty() && name == "config") {
                continue;
            }
            if (item.value().is_object()) {
                flatten(item.value().get_object(), name + "/", cells);
            } else if (item.value().is_string()) {
                cells.emplace_back(name, std::string(item.value().get_string()));
            } else {
                cells.emplace_back(name,
                                   item.value().is_null() ? "" : json::serialize(item.value()));
            }
        }
    }

    /// True when the line has columns that the file does not.
    bool add_columns(const Config& line) {
        Cells cells;
        flatten(line, "", cells);
        bool added = false;
        for (const auto& [name, text] : cells) {
            if (std::find(columns_.begin(), columns_.end(), name) == columns_.end()) {
                columns_.push_back(name);
                added = true;
            }
        }
        return added;
    }

    [[nodiscard]] std::string row_of(const Config& line) const {
        Cells cells;
        flatten(line, "", cells);
        std::string row;
        for (const std::string& column : columns_) {
            const auto found = std::find_if(cells.begin(), cells.end(),
                                            [&](const auto& cell) { return cell.first == column; });
            row += (row.empty() && &column == columns_.data() ? "" : ",") +
                   (found == cells.end() ? "" : quoted(found->second));
        }
        return row + "\r\n";
    }

    /// RFC 4180.
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

    /// Ray fixes the columns with the first row and loses later metrics; here the file is written
    /// anew when a metric appears for the first time.
    void rewrite(std::int64_t iteration) {
        whole_ = false;
        const std::vector<Config> reports =
            read_results(directory_ / results_file, iteration).reports;
        for (const Config& report : reports) {
            add_columns(report);
        }
        std::string text;
        for (const std::string& column : columns_) {
            text += (text.empty() ? "" : ",") + quoted(column);
        }
        text += text.empty() ? "" : "\r\n";
        for (const Config& report : reports) {
            text += row_of(report);
        }
        storage::replace_file(directory_ / progress_file, text);
        whole_ = true;
    }

    std::filesystem::path directory_;
    std::vector<std::string> columns_;
    bool whole_ = false; ///< it has all reports so far
};

} // namespace rtrain::track
