// SPDX-License-Identifier: Apache-2.0
/// @file
/// Data sets whose number of rows is not known before they are read. Functions make any number of
/// rows from each row of another data set, or a generator returns rows until it ends.
#pragma once

#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/batch.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/dataset/block_index.hpp>
#include <rtrain/data/dataset/dataset_handle.hpp>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

/// Rows made from input rows.
struct TransformedRows {
    Batch batch;
    std::vector<std::int64_t> of; ///< the input row of each, in ascending order
};
/// Never called without rows.
using RowTransform = std::function<TransformedRows(TransformedRows)>;

class UnsizedDataset {
public:
    explicit UnsizedDataset(Dataset input) : input_(std::move(input)) {}
    explicit UnsizedDataset(GeneratorBegin generator) : generator_(std::move(generator)) {}

    /// The same rows, transformed by another stage.
    [[nodiscard]] UnsizedDataset then(RowTransform stage) const {
        UnsizedDataset more = *this;
        more.stages_.push_back(std::move(stage));
        return more;
    }

    /// The source of the rows; null: a generator.
    [[nodiscard]] const Dataset* input() const noexcept { return input_ ? &*input_ : nullptr; }
    [[nodiscard]] const GeneratorBegin& generator() const noexcept { return generator_; }

    /// Transforms these rows of the input. `of` counts from 0.
    [[nodiscard]] TransformedRows make(Batch rows) const {
        TransformedRows made{std::move(rows), {}};
        made.of.resize(static_cast<std::size_t>(made.batch.size()));
        std::iota(made.of.begin(), made.of.end(), std::int64_t{0});
        for (const RowTransform& stage : stages_) {
            if (made.of.empty()) {
                return {};
            }
            made = stage(std::move(made));
        }
        return made;
    }

    /// Up to `rows` of the first rows; without columns if there are none.
    [[nodiscard]] Batch first(std::int64_t rows) const {
        std::vector<Batch> parts;
        std::int64_t found = 0;
        const auto read = reader();
        while (found < rows) {
            Batch next = read();
            if (next.size() == 0) {
                break;
            }
            TransformedRows made = make(std::move(next));
            if (made.batch.size() > 0) {
                parts.push_back(
                    slice_rows(made.batch, 0, std::min(made.batch.size(), rows - found)));
                found += parts.back().size();
            }
        }
        return parts.empty() ? Batch() : concatenate(parts);
    }

    /// The number of rows in a call of the functions: the same rows wherever a pass begins, but
    /// fewer at the end of a read. About 1 MiB, by the index.
    [[nodiscard]] static std::int64_t chunk_rows(const BlockIndex* index) {
        constexpr std::int64_t most = 256;
        return index ? std::clamp<std::int64_t>((1 << 20) / index->row_bytes(), 1, most) : most;
    }

    /// The error for requests for the number of rows, or for rows by number.
    [[nodiscard]] DataError unknown_size() const {
        return {"RT-D71",
                input_
                    ? "the number of rows that filter() and flat_map() leave is not known before "
                      "they are read; read the data set with data::Streaming, or make it .counted()"
                    : "the number of rows of a generator is not known before they are read; read "
                      "the data set with data::Streaming"};
    }

private:
    /// Returns rows of the input in order; none at the end.
    [[nodiscard]] std::function<Batch()> reader() const {
        if (!input_) {
            return [next = generator_({.lanes = 1})] {
                std::optional<Batch> rows = next();
                while (rows && rows->size() == 0) {
                    rows = next();
                }
                return rows ? *std::move(rows) : Batch();
            };
        }
        return [this, row = std::int64_t{0}]() mutable {
            const std::int64_t begin = row;
            row = std::min(input_->size(), begin + chunk_rows(input_->blocks().get()));
            return begin == row ? Batch() : input_->rows(at::arange(begin, row, at::kLong));
        };
    }

    std::optional<Dataset> input_;
    GeneratorBegin generator_;
    std::vector<RowTransform> stages_;
};

class UncountedRows : public Dataset::Source {
public:
    explicit UncountedRows(UnsizedDataset rows)
        : rows_(std::make_shared<const UnsizedDataset>(std::move(rows))) {}

    [[nodiscard]] std::int64_t size() const override { throw rows_->unknown_size(); }
    [[nodiscard]] Batch rows(const at::Tensor& /*indices*/) const override {
        throw rows_->unknown_size();
    }
    [[nodiscard]] std::shared_ptr<const UnsizedDataset> uncounted() const override { return rows_; }

private:
    std::shared_ptr<const UnsizedDataset> rows_;
};

/// The rows of `inner`, transformed by `stage`.
[[nodiscard]] inline Dataset made_of(const Dataset& inner, RowTransform stage) {
    const auto uncounted = inner.uncounted();
    return Dataset(std::make_shared<UncountedRows>(
        (uncounted ? *uncounted : UnsizedDataset(inner)).then(std::move(stage))));
}

/// The rows that `keep` selects. Throws DataError [RT-D73].
[[nodiscard]] inline TransformedRows
filter_rows(const std::function<at::Tensor(const Batch&)>& keep, TransformedRows rows) {
    const at::Tensor mask = keep(rows.batch);
    if (!mask.defined() || mask.scalar_type() != at::kBool || mask.dim() != 1 ||
        mask.size(0) != rows.batch.size()) {
        throw DataError(
            "RT-D73",
            detail::concat("the function of filter() returned ",
                           mask.defined() ? detail::concat(c10::toString(mask.scalar_type()),
                                                           " of shape ", c10::str(mask.sizes()))
                                          : "an undefined tensor",
                           "; expected bool of shape [", rows.batch.size(), "]: the rows to keep"));
    }
    const at::Tensor kept = mask.cpu().nonzero().view({-1});
    if (kept.numel() == rows.batch.size()) {
        return rows;
    }
    TransformedRows left;
    if (kept.numel() > 0) {
        left.batch = select_rows(rows.batch, kept);
        const auto* const row = kept.const_data_ptr<std::int64_t>();
        std::for_each_n(row, kept.numel(), [&](std::int64_t number) {
            left.of.push_back(rows.of[static_cast<std::size_t>(number)]);
        });
    }
    return left;
}

/// All rows that `function` makes from each row.
[[nodiscard]] inline TransformedRows flat_map_rows(const std::function<Batch(Batch)>& function,
                                                   const TransformedRows& rows) {
    std::vector<Batch> parts;
    TransformedRows made;
    for (std::int64_t row = 0; row < rows.batch.size(); ++row) {
        Batch part = function(slice_rows(rows.batch, row, row + 1));
        if (part.size() > 0) {
            made.of.insert(made.of.end(), static_cast<std::size_t>(part.size()),
                           rows.of[static_cast<std::size_t>(row)]);
            parts.push_back(std::move(part));
        }
    }
    if (!parts.empty()) {
        made.batch = concatenate(parts);
    }
    return made;
}

} // namespace rtrain::data
