// SPDX-License-Identifier: Apache-2.0
/// @file
/// TableReader: reads a data set as a table of features, labels and weights, in blocks.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/base/known_names.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/numeric_columns.hpp>
#include <rtrain/data/batches.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/gbdt/names.hpp>
#include <rtrain/gbdt/options.hpp>
#include <rtrain/gbdt/row_batches.hpp>
#include <rtrain/gbdt/row_block.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rtrain::gbdt {

/// Columns of a data set that are features, and their names: a column of several values per row has
/// a feature for each.
struct FeatureColumns {
    std::vector<std::string> columns{};
    Features features{};
};

/// Throws DataError [RT-G2] for a column that the table lacks, [RT-G3] for one of text.
[[nodiscard]] inline FeatureColumns features_of(const data::Dataset& rows,
                                                const TableColumns& roles) {
    const data::Schema schema = rows.schema();
    std::vector<std::string> names;
    std::ranges::transform(schema, std::back_inserter(names),
                           [](const data::ColumnType& column) { return column.name; });
    const std::vector<std::string> fields = roles.of_fields();
    std::vector<std::string> named = fields;
    named.insert(named.end(), roles.categorical.begin(), roles.categorical.end());
    for (const std::string& name : named) {
        if (std::ranges::find(names, name) == names.end()) {
            throw DataError("RT-G2", detail::concat("the table has no column \"", name, "\"; ",
                                                    detail::did_you_mean(name, names), "it has ",
                                                    detail::listed(names)));
        }
    }
    FeatureColumns found;
    for (const data::ColumnType& column : schema) {
        if (column.is_ragged) {
            const bool is_text = column.type == at::kByte && column.shape.empty();
            throw DataError("RT-G3", detail::concat("the column \"", column.name, "\" has ",
                                                    is_text ? "text" : "lists",
                                                    ", but trees need numbers; encode it with a "
                                                    "preprocess::LabelEncoder or OrdinalEncoder, "
                                                    "or leave it out with select_columns()"));
        }
        if (std::ranges::find(fields, column.name) != fields.end()) {
            continue;
        }
        const std::int64_t width = std::accumulate(column.shape.begin(), column.shape.end(),
                                                   std::int64_t{1}, std::multiplies<>());
        found.columns.push_back(column.name);
        for (std::int64_t i = 0; i < width; ++i) {
            found.features.names.push_back(
                column.shape.empty() ? column.name : detail::concat(column.name, '_', i));
            found.features.categorical.push_back(
                std::ranges::find(roles.categorical, column.name) != roles.categorical.end());
        }
    }
    return found;
}

/// The rows of part `part` of `parts` of a data set, or all of them; `T` is float or double.
template <class T>
class TableReader final : public RowSource<T> {
public:
    struct Part {
        int number = 0;
        int of = 1;
    };

    /// `classes`: the number of classes that labels have; 0: labels are any numbers. Throws
    /// DataError [RT-G2, RT-G3, RT-G9].
    TableReader(const data::Dataset& rows, TableColumns roles, Part part, std::int64_t classes = 0)
        : roles_(std::move(roles)), classes_(classes), columns_(features_of(rows, roles_)),
          rows_(rows.uncounted() != nullptr ? rows.counted() : rows) {
        if (roles_.label.empty() && roles_.lower_bound.empty()) {
            throw DataError("RT-G2",
                            "label_column is empty; name the column that is to be learned");
        }
        if (rows_.size() < part.of) {
            throw DataError("RT-G9", detail::concat(part.of, " ranks train on ", rows_.size(),
                                                    " rows; each needs at least one: use fewer "
                                                    "ranks, or gbdt::Ranks::one_per_node"));
        }
        if (part.of > 1) {
            rows_ = rows_.split(part.of)[static_cast<std::size_t>(part.number)];
        }
    }

    [[nodiscard]] const Features& features() const override { return columns_.features; }
    [[nodiscard]] std::int64_t rows() override { return rows_.size(); }

    void rewind() override {
        at_.reset();
        batches_.emplace(batches_in_order(rows_, block_rows));
        at_.emplace(batches_->begin());
        row_ = 0;
    }

    /// Throws DataError [RT-G4, RT-G7] for a label that cannot be learned.
    [[nodiscard]] RowBlock<T> next() override {
        if (*at_ == batches_->end()) {
            return {};
        }
        const data::Batch& batch = **at_;
        RowBlock<T> block{.rows = batch.size()};
        values_ = data::numeric_rows(batch, columns_.columns, type);
        block.values = values_.template const_data_ptr<T>();
        add_fields(batch, block);
        ++*at_;
        return block;
    }

    /// Reads and checks labels and weights only; call before rewind().
    void check() {
        const data::Dataset fields = rows_.select_columns(roles_.of_fields());
        for (const data::Batch& batch : batches_in_order(fields, block_rows)) {
            RowBlock<T> block{.rows = batch.size()};
            add_fields(batch, block);
        }
    }

private:
    static constexpr auto type = std::is_same_v<T, float> ? at::kFloat : at::kDouble;
    static constexpr std::int64_t block_rows = 16384; ///< of about 40 features in the L2 cache

    void add(Field field, at::Tensor values, RowBlock<T>& block) {
        const auto i = static_cast<std::size_t>(field);
        fields_[i] = std::move(values);
        block.fields[i] = {fields_[i].template const_data_ptr<double>(), fields_[i].size(1)};
    }
    void add(Field field, const data::Batch& batch, const std::string& name, RowBlock<T>& block) {
        if (name.empty()) {
            return;
        }
        add(field, data::numeric_rows(batch, {name}, at::kDouble), block);
        if (const std::int64_t width = block[field].width; width != 1) {
            throw DataError("RT-G2", detail::concat("the column \"", name, "\" has ", width,
                                                    " values per row; expected one"));
        }
    }

    /// Adds labels, weights and the like, and checks them. Throws DataError [RT-G4, RT-G7].
    void add_fields(const data::Batch& batch, RowBlock<T>& block) {
        add(Field::label, batch, roles_.label, block);
        add(Field::weight, batch, roles_.weight, block);
        add(Field::query, batch, roles_.query, block);
        add(Field::lower_bound, batch, roles_.lower_bound, block);
        add(Field::upper_bound, batch, roles_.upper_bound, block);
        if (!roles_.base_margin.empty()) {
            add(Field::base_margin, data::numeric_rows(batch, roles_.base_margin, at::kDouble),
                block);
        }
        check_labels(block);
        row_ += block.rows;
    }

    void check_labels(const RowBlock<T>& block) const {
        if (const double* const labels = block[Field::label].data) {
            for (std::int64_t i = 0; i < block.rows; ++i) {
                check_label(labels[i], row_ + i, classes_);
            }
        }
    }

    TableColumns roles_;
    std::int64_t classes_;
    FeatureColumns columns_;
    data::Dataset rows_; ///< of the part
    std::optional<data::Batches> batches_;
    std::optional<data::Batches::Iterator> at_;
    std::int64_t row_ = 0; ///< the first of the next block
    at::Tensor values_;
    std::array<at::Tensor, field_count> fields_;
};

} // namespace rtrain::gbdt
