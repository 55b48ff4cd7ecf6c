// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tables, and lists of names with their values, for a terminal. Cost tier 0: std only.
#pragma once

#include <rtrain/console/text.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::console {

/// One line each: two blanks, the name, and the text, aligned after the longest name.
[[nodiscard]] inline std::string
list(const std::vector<std::pair<std::string, std::string>>& items) {
    int widest = 0;
    for (const auto& [name, text] : items) {
        widest = std::max(widest, columns_of(name));
    }
    std::string lines;
    for (const auto& [name, text] : items) {
        const auto gap = static_cast<std::size_t>(widest - columns_of(name) + 2);
        lines += "  " + printable(name) + std::string(gap, ' ') + printable(text) + '\n';
    }
    return lines;
}

class Table {
public:
    struct Column {
        std::string title;
        bool is_number = false; ///< right-aligned
        int leaves = 0; ///< on narrow terminals, columns with the largest value go first; 0: stays
    };

    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {
        std::vector<std::string> titles;
        titles.reserve(columns_.size());
        for (const Column& column : columns_) {
            titles.push_back(column.title);
        }
        rows_.push_back(std::move(titles));
    }

    /// One text per column.
    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

    /// The table in at most `columns` columns, if possible: drops columns, then truncates the texts
    /// of the first.
    [[nodiscard]] std::string text(int columns) const {
        std::vector<std::size_t> shown(columns_.size());
        for (std::size_t i = 0; i < shown.size(); ++i) {
            shown[i] = i;
        }
        while (width_of(shown) > columns) {
            const auto least =
                std::max_element(shown.begin(), shown.end(), [&](std::size_t a, std::size_t b) {
                    return columns_[a].leaves < columns_[b].leaves;
                });
            if (columns_[*least].leaves == 0) {
                break;
            }
            shown.erase(least);
        }
        constexpr int shortest = 8;
        const int first = width_of_column(0);
        const int over = std::max(width_of(shown) - columns, 0);
        const int first_width = std::min(first, std::max(first - over, shortest));
        std::string lines;
        for (const std::vector<std::string>& row : rows_) {
            std::string line = " ";
            for (const std::size_t i : shown) {
                const int width = i == 0 ? first_width : width_of_column(i);
                const std::string cell = cut(row[i], width);
                const std::string gap(static_cast<std::size_t>(width - columns_of(cell)), ' ');
                line += ' ' + (columns_[i].is_number ? gap + cell : cell + gap) + ' ';
            }
            line.erase(line.find_last_not_of(' ') + 1);
            lines += line + '\n';
        }
        return lines;
    }

private:
    [[nodiscard]] int width_of_column(std::size_t column) const {
        int width = 0;
        for (const std::vector<std::string>& row : rows_) {
            width = std::max(width, columns_of(row[column]));
        }
        return width;
    }
    [[nodiscard]] int width_of(const std::vector<std::size_t>& shown) const {
        int width = 0;
        for (const std::size_t column : shown) {
            width += width_of_column(column) + 2;
        }
        return width;
    }

    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_; ///< titles first
};

} // namespace rtrain::console
