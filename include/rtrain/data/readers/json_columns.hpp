// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts JSON rows to batches.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/files/file_blocks.hpp>
#include <rtrain/data/readers/json_schema.hpp>
#include <rtrain/format/json_row.hpp>
#include <rtrain/format/json_scanner.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Builds a batch of rows. Booleans become bool, integers int64, other numbers float64 with NaN for
/// null; texts and lists are ragged. A null or missing value of another type is 0 or empty, and
/// masked.
class JsonBatch {
public:
    /// `others_are_errors`: a row must not have other columns.
    JsonBatch(const std::vector<JsonColumn>& columns, bool others_are_errors)
        : others_are_errors_(others_are_errors) {
        for (const JsonColumn& column : columns) {
            columns_.emplace_back().is = column;
        }
    }

    /// Adds a whole row, or nothing: throws std::invalid_argument as check().
    void add(std::span<const format::JsonCell> row) {
        check(row);
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            const bool is_null = found_[i] == nullptr || found_[i]->kind == format::JsonKind::null;
            columns_[i].add(is_null ? nothing_ : *found_[i], is_null);
        }
        ++rows_;
        expect_keys_of(row);
    }

    /// Adds a row that has the same keys as the last row passed to add(), in their order, and plain
    /// values of the columns' types. False for others: nothing is added then.
    [[nodiscard]] bool add_plain(std::string_view row) {
        format::JsonScanner json(row);
        bool is_plain = !keys_.empty() && json.take('{');
        for (std::size_t i = 0; is_plain && i < keys_.size(); ++i) {
            const auto& [key, column] = keys_[i];
            is_plain =
                (i == 0 || json.take(',')) && json.take_key(key) &&
                (column < columns_.size() ? columns_[column].add_plain(json) : json.skip_value());
        }
        if (!is_plain || !json.take('}') || !json.is_at_end()) {
            for (Column& column : columns_) {
                column.truncate(rows_);
            }
            return false;
        }
        for (const std::size_t column : without_key_) {
            columns_[column].add(nothing_, true);
        }
        ++rows_;
        return true;
    }

    /// Throws std::invalid_argument if a value has a different type than its column.
    void check(std::span<const format::JsonCell> row) {
        found_.assign(columns_.size(), nullptr);
        std::size_t next = 0; // rows mostly have the same order
        for (const format::JsonCell& cell : row) {
            if (next >= columns_.size() || columns_[next].is.name != cell.key) {
                next = static_cast<std::size_t>(
                    std::ranges::find(
                        columns_, cell.key,
                        [](const Column& column) -> auto& { return column.is.name; }) -
                    columns_.begin());
            }
            if (next < columns_.size()) {
                require_type(columns_[next].is, cell);
                found_[next++] = &cell;
            } else if (others_are_errors_) {
                throw std::invalid_argument(
                    detail::concat("column \"", cell.key,
                                   "\" is not in the first rows; give it a type with .types, or "
                                   "leave it out by naming the columns to read in .columns"));
            }
        }
    }

    [[nodiscard]] Batch finish() const {
        Batch::Columns columns;
        Batch::RaggedColumns ragged;
        Batch::Columns masks;
        for (const Column& column : columns_) {
            column.finish(columns, ragged);
            const bool has_nan = column.is.kind == format::JsonKind::real;
            if (!has_nan && std::ranges::find(column.valid, 0) != column.valid.end()) {
                masks.emplace_back(column.is.name,
                                   at::tensor(column.valid, at::kByte).to(at::kBool));
            }
        }
        return {std::move(columns), std::move(ragged), std::move(masks)};
    }

private:
    static constexpr double nan = std::numeric_limits<double>::quiet_NaN();

    struct Column {
        JsonColumn is;
        std::vector<std::int64_t> integers;
        std::vector<double> reals;
        TextBuilder texts;
        std::vector<std::int64_t> offsets{0};
        std::vector<std::uint8_t> valid;

        void add(const format::JsonCell& cell, bool is_null) {
            valid.push_back(is_null ? 0 : 1);
            switch (is.kind) {
            case format::JsonKind::text:
                texts.add(is_null                               ? std::string()
                          : cell.kind == format::JsonKind::text ? cell.text
                                                                : integer_text(cell));
                break;
            case format::JsonKind::real:
                reals.push_back(is_null ? nan : cell.real);
                break;
            case format::JsonKind::integers:
                integers.insert(integers.end(), cell.integers.begin(), cell.integers.end());
                offsets.push_back(static_cast<std::int64_t>(integers.size()));
                break;
            case format::JsonKind::reals:
                reals.insert(reals.end(), cell.reals.begin(), cell.reals.end());
                offsets.push_back(static_cast<std::int64_t>(reals.size()));
                break;
            default:
                integers.push_back(is_null                               ? 0
                                   : cell.kind == format::JsonKind::real ? std::int64_t(cell.real)
                                                                         : cell.integer);
            }
        }

        /// Adds the next value of a row; false if it has a different type than this column. It may
        /// then be partly added.
        [[nodiscard]] bool add_plain(format::JsonScanner& json) {
            const auto push = [](auto& values, const auto& value) {
                if (value) {
                    values.push_back(*value);
                }
                return value.has_value();
            };
            if (json.take_null()) {
                add({}, true);
                return true;
            }
            valid.push_back(1);
            switch (is.kind) {
            case format::JsonKind::text: {
                const auto text = json.take_text();
                texts.add(text.value_or(""));
                return text.has_value();
            }
            case format::JsonKind::real:
                return push(reals, json.take_real());
            case format::JsonKind::integers:
                return json.take_list([&] { return push(integers, json.take_integer()); }) &&
                       push(offsets, std::optional(std::ssize(integers)));
            case format::JsonKind::reals:
                return json.take_list([&] {
                    return json.take_null() ? push(reals, std::optional(nan))
                                            : push(reals, json.take_real());
                }) && push(offsets, std::optional(std::ssize(reals)));
            case format::JsonKind::boolean:
                return push(integers, json.take_boolean());
            default:
                return push(integers, json.take_integer());
            }
        }

        /// Keeps only the first rows.
        void truncate(std::size_t rows) {
            valid.resize(rows);
            switch (is.kind) {
            case format::JsonKind::text:
                texts.truncate(rows);
                break;
            case format::JsonKind::real:
                reals.resize(rows);
                break;
            case format::JsonKind::integers:
                offsets.resize(rows + 1);
                integers.resize(static_cast<std::size_t>(offsets.back()));
                break;
            case format::JsonKind::reals:
                offsets.resize(rows + 1);
                reals.resize(static_cast<std::size_t>(offsets.back()));
                break;
            default:
                integers.resize(rows);
            }
        }

        void finish(Batch::Columns& columns, Batch::RaggedColumns& ragged) const {
            switch (is.kind) {
            case format::JsonKind::text:
                ragged.emplace_back(is.name, texts.finish());
                break;
            case format::JsonKind::real:
                columns.emplace_back(is.name, at::tensor(reals, at::kDouble));
                break;
            case format::JsonKind::integers:
                ragged.emplace_back(is.name, Ragged{at::tensor(integers, at::kLong),
                                                    at::tensor(offsets, at::kLong)});
                break;
            case format::JsonKind::reals:
                ragged.emplace_back(is.name, Ragged{at::tensor(reals, at::kDouble),
                                                    at::tensor(offsets, at::kLong)});
                break;
            default:
                columns.emplace_back(
                    is.name, at::tensor(integers, at::kLong)
                                 .to(is.kind == format::JsonKind::boolean ? at::kBool : at::kLong));
            }
        }
    };

    /// Sets the keys that the next rows should have.
    void expect_keys_of(std::span<const format::JsonCell> row) {
        if (std::ranges::equal(row, keys_, {}, &format::JsonCell::key, &Key::name)) {
            return;
        }
        keys_.clear();
        without_key_.clear();
        for (const format::JsonCell& cell : row) {
            const auto is_known = std::ranges::find(keys_, cell.key, &Key::name) != keys_.end();
            if (is_known || !format::JsonScanner::is_plain(cell.key)) {
                keys_.clear();
                return;
            }
            const auto column = std::ranges::find(found_, &cell) - found_.begin();
            keys_.push_back({cell.key, static_cast<std::size_t>(column)});
        }
        for (std::size_t column = 0; column < columns_.size(); ++column) {
            if (found_[column] == nullptr) {
                without_key_.push_back(column);
            }
        }
    }

    struct Key {
        std::string name;
        std::size_t column; ///< columns_.size(): none
    };

    std::vector<Column> columns_;
    std::size_t rows_ = 0;
    bool others_are_errors_;
    std::vector<const format::JsonCell*> found_;
    format::JsonCell nothing_;
    std::vector<Key> keys_;                     ///< expected by add_plain(); empty: no row is plain
    std::vector<std::size_t> without_key_ = {}; ///< columns
};

} // namespace rtrain::data
