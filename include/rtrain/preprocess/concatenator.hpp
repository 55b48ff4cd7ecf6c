// SPDX-License-Identifier: Apache-2.0
/// @file
/// Concatenator: joins numeric columns into one, as model input.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/numeric_columns.hpp>
#include <rtrain/preprocess/categories.hpp>
#include <rtrain/preprocess/columns.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <utility>

namespace rtrain::preprocess {

/// Joins columns into one of shape (rows, width) and removes them; columns with more dimensions are
/// flattened per row. Needs no fit().
///
/// @code
/// rtrain::preprocess::Concatenator features({"age", "color"}, {.output_column_name = "x"});
/// @endcode
class Concatenator {
public:
    /// Options of Concatenator.
    struct Options {
        /// Name of the resulting column.
        std::string output_column_name = "concat_out";
        /// Unset: the promoted type of the columns.
        std::optional<at::ScalarType> dtype = std::nullopt;
    };

    /// Throws DataError [RT-D59].
    explicit Concatenator(const Names& columns) : Concatenator(columns, Options()) {}
    Concatenator(const Names& columns, Options options)
        : columns_(rtrain::detail::output_names(columns, {})), options_(std::move(options)) {}

    /// Throws DataError [RT-D2, RT-D56], and [RT-D57] for rows without a value.
    [[nodiscard]] data::Batch transform(const data::Batch& batch) const {
        std::optional<at::ScalarType> type = options_.dtype;
        rtrain::detail::ChangedBatch changed(batch);
        for (const std::string& name : columns_) {
            const at::ScalarType own = rtrain::detail::numeric_column(batch, name).scalar_type();
            if (const at::Tensor valid = batch.valid(name);
                valid.defined() && !valid.all().item<bool>()) {
                throw rtrain::detail::missing_value(name);
            }
            type = options_.dtype ? *options_.dtype : type ? c10::promoteTypes(*type, own) : own;
            changed.erase(name);
        }
        changed.set(options_.output_column_name, data::numeric_rows(batch, columns_, *type));
        return std::move(changed).finish();
    }

private:
    Names columns_;
    Options options_;
};

} // namespace rtrain::preprocess
