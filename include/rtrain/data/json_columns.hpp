// SPDX-License-Identifier: Apache-2.0
/// @file
/// The columns of JSON rows: their types, found in some rows, and batches of others.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch.hpp>
#include <rtrain/data/file_blocks.hpp>
#include <rtrain/format/json_row.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rtrain::data {

/// A column and the kind of its values, which is not null.
struct JsonColumn {
    std::string name;
    format::JsonKind kind = format::JsonKind::null;
};

/// Finds the columns of rows. An integer beside a real number is one; a column of nulls is taken
/// for numbers.
class JsonSchema {
public:
    /// Columns that are not in `selected` are passed over; with none selected, none is.
    explicit JsonSchema(std::vector<std::string> selected) : selected_(std::move(selected)) {}

    /// Throws std::invalid_argument for values that no column can have, or of two types.
    void add(std::span<const format::JsonCell> row) {
        using format::JsonKind;
        for (const format::JsonCell& cell : row) {
            if (!is_selected(cell.key)) {
                continue;
            }
            auto found = std::ranges::find(columns_, cell.key, &JsonColumn::name);
            if (found == columns_.end()) {
                found = columns_.insert(found, {.name = cell.key, .kind = JsonKind::null});
            }
            JsonKind& kind = found->kind;
            if (cell.kind == JsonKind::other) {
                throw std::invalid_argument(detail::concat(
                    "column \"", cell.key, "\" has ", name_of(cell.kind),
                    "; leave it out by naming those to read in JsonOptions::columns"));
            }
            const auto is_pair = [&](JsonKind less, JsonKind more) {
                return (kind == less && cell.kind == more) || (kind == more && cell.kind == less);
            };
            if (kind == JsonKind::null || kind == cell.kind) {
                kind = cell.kind;
            } else if (is_pair(JsonKind::integer, JsonKind::real)) {
                kind = JsonKind::real;
            } else if (is_pair(JsonKind::integers, JsonKind::reals)) {
                kind = JsonKind::reals;
            } else if (cell.kind != JsonKind::null) {
                throw std::invalid_argument(detail::concat("column \"", cell.key, "\" has ",
                                                           name_of(cell.kind), ", and ",
                                                           name_of(kind), " in a row before"));
            }
        }
    }

    /// In the order in which they were met, or selected.
    [[nodiscard]] std::vector<JsonColumn> finish() {
        for (JsonColumn& column : columns_) {
            if (column.kind == format::JsonKind::null) {
                column.kind = format::JsonKind::real;
            }
        }
        if (!selected_.empty()) {
            std::ranges::sort(columns_, {}, [&](const JsonColumn& column) {
                return std::ranges::find(selected_, column.name) - selected_.begin();
            });
        }
        return columns_;
    }

private:
    [[nodiscard]] bool is_selected(const std::string& name) const {
        return selected_.empty() || std::ranges::find(selected_, name) != selected_.end();
    }
    std::vector<std::string> selected_;
    std::vector<JsonColumn> columns_;
};

/// Makes a batch of rows. Booleans become bool, integers int64, other numbers float64 with NaN for
/// null; texts and lists are ragged. Where null or nothing stands for another value, it is 0 or
/// empty, and the column's mask says so.
class JsonBatch {
public:
    /// `others_are_errors`: a row has no columns but these.
    JsonBatch(const std::vector<JsonColumn>& columns, bool others_are_errors)
        : others_are_errors_(others_are_errors) {
        for (const JsonColumn& column : columns) {
            columns_.emplace_back().is = column;
        }
    }

    /// Adds all of a row, or nothing: throws std::invalid_argument as check().
    void add(std::span<const format::JsonCell> row) {
        check(row);
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            const bool is_null = found_[i] == nullptr || found_[i]->kind == format::JsonKind::null;
            columns_[i].add(is_null ? nothing_ : *found_[i], is_null);
        }
    }

    /// Throws std::invalid_argument when a value is not of its column's type.
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
                                   "\" is not in the first rows; name the columns to read in "
                                   "JsonOptions::columns, or write all of them in the first row"));
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
                texts.add(is_null ? std::string_view() : cell.text);
                break;
            case format::JsonKind::real:
                reals.push_back(is_null ? std::numeric_limits<double>::quiet_NaN() : cell.real);
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
                integers.push_back(is_null ? 0 : cell.integer);
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

    static void require_type(const JsonColumn& column, const format::JsonCell& cell) {
        using format::JsonKind;
        const bool fits = cell.kind == column.kind || cell.kind == JsonKind::null ||
                          (cell.kind == JsonKind::integer && column.kind == JsonKind::real) ||
                          (cell.kind == JsonKind::integers && column.kind == JsonKind::reals);
        if (!fits) {
            throw std::invalid_argument(
                detail::concat("column \"", column.name, "\" has ", name_of(cell.kind),
                               "; expected ", name_of(column.kind), ", as in the first rows"));
        }
    }

    std::vector<Column> columns_;
    bool others_are_errors_;
    std::vector<const format::JsonCell*> found_;
    format::JsonCell nothing_;
};

} // namespace rtrain::data
