// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ragged text columns as tokenizers read them, and their output, also ragged: int64, one element
/// per token.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/ragged.hpp>
#include <rtrain/preprocess/categories.hpp>
#include <rtrain/preprocess/columns.hpp>
#include <rtrain/preprocess/words.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace rtrain::detail {

/// Throws DataError [RT-D61] if `text` is not UTF-8.
inline void require_utf8(std::string_view text) {
    for (std::size_t place = 0; place < text.size();) {
        const std::size_t length = utf8_length(text.substr(place));
        if (length == 0) {
            throw DataError("RT-D61", concat("a text is not UTF-8 at byte ", place, " of ",
                                             text.size(), "; convert it"));
        }
        place += length;
    }
}

[[nodiscard]] inline DataError unknown_id(std::int64_t id, std::int64_t tokens) {
    return DataError("RT-D62", concat("the tokenizer has no token ", id, "; it has ", tokens));
}

/// Replaces each row of text columns by `encode(text)`, a vector of int64. Throws DataError [RT-D2,
/// RT-D56, RT-D57], and errors of encode() with column and row added.
template <class Encode>
[[nodiscard]] data::Batch encoded(const data::Batch& batch, const preprocess::Names& columns,
                                  const preprocess::Names& output, const Encode& encode) {
    ChangedBatch changed(batch);
    for (std::size_t i = 0; i < columns.size(); ++i) {
        if (!is_ragged(batch, columns[i])) {
            throw wrong_column(columns[i], concat("has shape ", batch[columns[i]].sizes()), "text");
        }
        const ValueColumn rows(batch, columns[i]);
        std::vector<std::int64_t> values;
        std::vector<std::int64_t> offsets{0};
        for (std::int64_t row = 0; row < rows.size(); ++row) {
            const auto text = rows[row];
            if (!text) {
                throw missing_value(columns[i]);
            }
            try {
                const auto ids = encode(std::get<std::string>(*text));
                values.insert(values.end(), ids.begin(), ids.end());
            } catch (const DataError& error) {
                throw DataError(error.code(), concat("column \"", columns[i], "\", row ", row,
                                                     " of the batch: ", error.message()));
            }
            offsets.push_back(static_cast<std::int64_t>(values.size()));
        }
        const at::Device device = batch.ragged(columns[i]).values.device();
        changed.set(output[i], data::Ragged{at::tensor(values, at::kLong).to(device),
                                            at::tensor(offsets, at::kLong).to(device)});
    }
    return std::move(changed).finish();
}

/// Calls `visit(text)` for each text of a column. Throws DataError [RT-D2, RT-D56, RT-D61].
template <class Visit>
void for_each_text(const data::Batch& batch, const std::string& name, const Visit& visit) {
    if (!is_ragged(batch, name)) {
        throw wrong_column(name, concat("has shape ", batch[name].sizes()), "text");
    }
    const ValueColumn rows(batch, name);
    for (std::int64_t row = 0; row < rows.size(); ++row) {
        if (const auto value = rows[row]) {
            const std::string_view text = std::get<std::string>(*value);
            require_utf8(text);
            visit(text);
        }
    }
}

} // namespace rtrain::detail
