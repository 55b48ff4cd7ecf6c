// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes rows of one length from rows of any length, for sequence models.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/ragged.hpp>
#include <rtrain/data/dataset/counted.hpp>
#include <rtrain/data/dataset/dataset_handle.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

/// The values of a ragged column, all rows of a block concatenated and cut into rows of `length`
/// values. Values left over at the end of a block are dropped.
class PackedBlocks : public Dataset::BlockSource {
public:
    /// Reads all blocks, to count their values. Throws DataError [RT-D2, RT-D63].
    PackedBlocks(TransformedBlocks rows, std::string column, std::int64_t length)
        : rows_(std::move(rows)), column_(std::move(column)), length_(length) {
        for (std::int64_t block = 0; block < rows_.index().size(); ++block) {
            const Batch packed = read(block);
            blocks_.push_back({.rows = packed.size(),
                               .bytes = bytes_of(packed),
                               .content = rows_.index().content()});
        }
    }

    [[nodiscard]] std::vector<Block> blocks() const override { return blocks_; }
    [[nodiscard]] Batch read(std::int64_t block) const override {
        const Batch whole = rows_.read(block);
        if (whole.size() == 0) {
            return {};
        }
        const at::Tensor& values = whole.ragged(column_).values;
        if (values.dim() != 1) {
            throw DataError("RT-D63", detail::concat("pack() was called with \"", column_,
                                                     "\", whose values have ", values.dim() - 1,
                                                     " dimensions each; expected single numbers"));
        }
        const std::int64_t rows = values.size(0) / length_;
        if (rows == 0) {
            return {};
        }
        return Batch({{column_, values.slice(0, 0, rows * length_).reshape({rows, length_})}});
    }
    [[nodiscard]] std::string name_of(std::int64_t block) const override {
        return rows_.index().source().name_of(block);
    }

    /// Functions may draw random numbers.
    [[nodiscard]] bool is_fixed() const override { return false; }

private:
    TransformedBlocks rows_;
    std::string column_;
    std::int64_t length_;
    std::vector<Block> blocks_;
};

} // namespace rtrain::data
