// SPDX-License-Identifier: Apache-2.0
/// @file
/// Data sets in memory, lazy data sets, and the stages, each a separate data set.
#pragma once

#include <rtrain/base/compiled.hpp>
#include <rtrain/base/crc32c.hpp>
#include <rtrain/base/error.hpp>
#include <rtrain/data/batch/rows.hpp>
#include <rtrain/data/dataset/block_index.hpp>
#include <rtrain/data/dataset/blocks.hpp>
#include <rtrain/data/dataset/counted.hpp>
#include <rtrain/data/dataset/dataset.hpp>
#include <rtrain/data/dataset/joined.hpp>
#include <rtrain/data/dataset/mapped.hpp>
#include <rtrain/data/dataset/materialized.hpp>
#include <rtrain/data/dataset/packed_rows.hpp>
#include <rtrain/data/dataset/unsized.hpp>
#include <rtrain/data/dataset/views.hpp>
#include <rtrain/data/order/permutation.hpp>
#include <rtrain/data/order/random.hpp>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

RTRAIN_DOOR std::unique_ptr<Dataset::BlockSource::Cursor>
Dataset::BlockSource::open(std::int64_t block, std::int64_t first_row) const {
    class OfWhole : public Cursor {
    public:
        OfWhole(Batch batch, std::int64_t row) : batch_(std::move(batch)), row_(row) {}
        [[nodiscard]] Batch next(std::int64_t rows) override {
            const std::int64_t begin = std::min(row_, batch_.size());
            row_ = begin + std::min(rows, batch_.size() - begin);
            if (row_ - begin == batch_.size()) {
                return std::exchange(batch_, {});
            }
            return select_rows(batch_, at::arange(begin, row_, at::kLong));
        }
        [[nodiscard]] std::int64_t bytes() const override { return bytes_of(batch_); }

    private:
        Batch batch_; ///< empty after it was returned whole
        std::int64_t row_;
    };
    return std::make_unique<OfWhole>(read(block), first_row);
}

namespace internal {

/// The bytes of a sample of rows from first to last, about 1 MiB.
[[nodiscard]] inline std::string bytes_of_some(const at::Tensor& column) {
    constexpr std::int64_t most_bytes = 1 << 20;
    constexpr std::int64_t fewest_rows = 3;
    const std::int64_t rows = column.size(0);
    if (rows == 0) {
        return "";
    }
    const auto row_bytes = static_cast<std::int64_t>(column.nbytes()) / rows;
    const std::int64_t count =
        std::min(rows, std::max(fewest_rows, most_bytes / std::max<std::int64_t>(row_bytes, 1)));
    const at::Tensor spread = at::arange(count, at::kLong)
                                  .mul(rows - 1)
                                  .div(std::max<std::int64_t>(count - 1, 1), "floor")
                                  .to(column.device());
    const at::Tensor some = column.index_select(0, spread).cpu().contiguous();
    return {static_cast<const char*>(some.const_data_ptr()), some.nbytes()};
}

} // namespace internal

RTRAIN_DOOR Dataset from_tensors(Batch::Columns columns) {
    class InMemory : public Dataset::Source {
    public:
        explicit InMemory(Batch::Columns columns) : columns_(std::move(columns)) {}
        [[nodiscard]] std::int64_t size() const override { return columns_.front().second.size(0); }
        [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
            Batch::Columns selected;
            for (const auto& [name, column] : columns_) {
                selected.emplace_back(name, column.index_select(0, indices));
            }
            return Batch(std::move(selected));
        }
        /// Computed from an evenly spread sample of rows; for small columns, from all.
        [[nodiscard]] std::uint64_t content() const override {
            std::call_once(once_, [this] {
                for (const auto& [name, column] : columns_) {
                    const std::string some = internal::bytes_of_some(column.detach());
                    content_ = hash_of(content_, checkpoint::crc32c(name),
                                       static_cast<std::int64_t>(column.scalar_type()),
                                       column.size(0), checkpoint::crc32c(some));
                }
            });
            return content_;
        }

    private:
        Batch::Columns columns_;
        mutable std::once_flag once_;
        mutable std::uint64_t content_ = 0;
    };
    if (columns.empty()) {
        throw DataError("RT-D6", "from_tensors() needs at least one column");
    }
    for (const auto& [name, column] : columns) {
        if (!column.defined() || column.dim() == 0 ||
            column.size(0) != columns.front().second.size(0)) {
            throw DataError(
                "RT-D6",
                detail::concat(
                    "column \"", name, "\" has ",
                    column.defined() && column.dim() > 0 ? column.size(0) : 0, " rows, but \"",
                    columns.front().first,
                    "\" has a different number; all columns need the same number of rows"));
        }
    }
    return Dataset(std::make_shared<InMemory>(std::move(columns)));
}

RTRAIN_DOOR Dataset lazy(std::function<Dataset()> open) {
    class Lazy : public Dataset::Source {
    public:
        explicit Lazy(std::function<Dataset()> open) : open_(std::move(open)) {}
        [[nodiscard]] std::int64_t size() const override { return opened().size(); }
        [[nodiscard]] Batch rows(const at::Tensor& indices) const override {
            return opened().rows(indices);
        }
        [[nodiscard]] std::shared_ptr<const BlockIndex> blocks() const override {
            return opened().blocks();
        }
        [[nodiscard]] std::uint64_t content() const override { return opened().content(); }
        [[nodiscard]] std::shared_ptr<const UnsizedDataset> uncounted() const override {
            return opened().uncounted();
        }

    private:
        const Dataset& opened() const {
            std::call_once(once_, [this] { dataset_ = std::make_unique<Dataset>(open_()); });
            return *dataset_;
        }
        std::function<Dataset()> open_;
        mutable std::once_flag once_;
        mutable std::unique_ptr<Dataset> dataset_;
    };
    return Dataset(std::make_shared<Lazy>(std::move(open)));
}

RTRAIN_DOOR std::uint64_t Dataset::content() const {
    const auto index = blocks();
    return index ? index->content() : source_->content();
}

RTRAIN_DOOR Dataset Dataset::map_batches(std::function<Batch(Batch)> function) const {
    return lazy([inner = *this, function = std::move(function)] {
        const BatchFunction of_rows = [function](Batch batch, std::int64_t) {
            return function(std::move(batch));
        };
        if (!inner.uncounted()) {
            return Dataset(std::make_shared<MappedRows>(inner, of_rows));
        }
        return made_of(inner, [of_rows](TransformedRows rows) {
            rows.batch = map_rows(of_rows, std::move(rows.batch), 0);
            return rows;
        });
    });
}

RTRAIN_DOOR Dataset Dataset::map_batches(std::function<Batch(Batch, Random&)> function,
                                         std::uint64_t seed) const {
    return lazy([inner = *this, function = std::move(function), seed] {
        if (inner.uncounted()) {
            throw DataError("RT-D90",
                            "a function that draws random numbers gets them by the number of a "
                            "row, which rows after filter(), flat_map() or a generator do not "
                            "have; put it before these, or make the data set .counted()");
        }
        return Dataset(std::make_shared<MappedRows>(
            inner, [function, seed](Batch batch, std::int64_t first_row) {
                Random random(hash_of(ReadingFor::pass().hash, seed, first_row));
                return function(std::move(batch), random);
            }));
    });
}

RTRAIN_DOOR Dataset Dataset::map(std::function<Batch(Batch)> function) const {
    return map_batches([function = std::move(function)](const Batch& batch) {
        const auto of_row = [&](Batch one, std::int64_t) { return function(std::move(one)); };
        std::vector<Batch> rows;
        for (std::int64_t row = 0; row < batch.size(); ++row) {
            rows.push_back(map_rows(of_row, slice_rows(batch, row, row + 1), row));
        }
        return rows.empty() ? batch : concatenate(rows);
    });
}

RTRAIN_DOOR Dataset Dataset::filter(std::function<at::Tensor(const Batch&)> keep) const {
    return lazy([inner = *this, keep = std::move(keep)] {
        return made_of(inner,
                       [keep](TransformedRows rows) { return filter_rows(keep, std::move(rows)); });
    });
}

RTRAIN_DOOR Dataset Dataset::filter(std::function<bool(const Batch&)> keep) const {
    return filter([keep = std::move(keep)](const Batch& batch) {
        at::Tensor mask = at::empty({batch.size()}, at::kBool);
        for (std::int64_t row = 0; row < batch.size(); ++row) {
            mask.mutable_data_ptr<bool>()[row] = keep(slice_rows(batch, row, row + 1));
        }
        return mask;
    });
}

RTRAIN_DOOR Dataset Dataset::flat_map(std::function<Batch(Batch)> function) const {
    return lazy([inner = *this, function = std::move(function)] {
        return made_of(inner, [function](const TransformedRows& rows) {
            return flat_map_rows(function, rows);
        });
    });
}

RTRAIN_DOOR Dataset Dataset::counted() const {
    return lazy([inner = *this] {
        const auto uncounted = inner.uncounted();
        return uncounted
                   ? from_blocks(std::make_shared<CountedBlocks>(TransformedBlocks(uncounted)))
                   : inner;
    });
}

RTRAIN_DOOR Dataset Dataset::select_columns(std::vector<std::string> names) const {
    return map_batches([names = std::move(names)](const Batch& batch) {
        const auto selected = [&](auto columns) {
            std::erase_if(columns, [&](const auto& column) {
                return std::ranges::find(names, column.first) == names.end();
            });
            return columns;
        };
        for (const std::string& name : names) {
            (void)batch.valid(name); // throws RT-D2 if it does not exist
        }
        return Batch(selected(batch.columns()), selected(batch.ragged_columns()),
                     selected(batch.masks()));
    });
}

RTRAIN_DOOR Dataset Dataset::limit(std::int64_t rows) const {
    if (rows < 0) {
        throw DataError("RT-D121",
                        detail::concat("limit() was given ", rows, " rows; expected at least 0"));
    }
    return lazy([inner = *this, rows] {
        const std::int64_t end = std::clamp<std::int64_t>(rows, 0, inner.size());
        return Dataset(std::make_shared<RowsOfRange>(inner, RowRange{0, end}));
    });
}

RTRAIN_DOOR Dataset Dataset::shuffle(std::uint64_t seed) const {
    return lazy([inner = *this, seed] {
        return Dataset(
            std::make_shared<RowsOfRange>(inner, RowRange{0, inner.size()}, hash_of(seed)));
    });
}

RTRAIN_DOOR std::vector<Dataset> Dataset::split(std::int64_t parts) const {
    if (parts < 1) {
        throw DataError("RT-D69", detail::concat("split() was called with ", parts,
                                                 " parts; expected at least 1"));
    }
    std::vector<Dataset> split;
    for (std::int64_t number = 0; number < parts; ++number) {
        split.push_back(lazy([inner = *this, parts, number] {
            return Dataset(
                std::make_shared<RowsOfRange>(inner, even_part(inner.size(), parts, number)));
        }));
    }
    return split;
}

RTRAIN_DOOR std::pair<Dataset, Dataset>
Dataset::train_test_split(double test_size, std::optional<std::uint64_t> seed) const {
    if (!(test_size > 0 && test_size < 1)) {
        throw DataError("RT-D69",
                        detail::concat("train_test_split() was called with a test_size of ",
                                       test_size, "; expected more than 0, less than 1"));
    }
    const auto part = [&](bool tests) {
        return lazy([inner = *this, test_size, seed, tests] {
            const auto test =
                static_cast<std::int64_t>(std::ceil(test_size * static_cast<double>(inner.size())));
            const std::int64_t train = inner.size() - test;
            const RowRange range = tests ? RowRange{train, inner.size()} : RowRange{0, train};
            return Dataset(std::make_shared<RowsOfRange>(
                inner, range, seed ? std::optional(hash_of(*seed)) : std::nullopt));
        });
    };
    return {part(false), part(true)};
}

RTRAIN_DOOR Dataset Dataset::union_with(std::vector<Dataset> others) const {
    others.insert(others.begin(), *this);
    return lazy(
        [others = std::move(others)] { return Dataset(std::make_shared<UnionOfRows>(others)); });
}

RTRAIN_DOOR Dataset Dataset::zip(Dataset other) const {
    return lazy([inner = *this, other = std::move(other)] {
        return in_blocks_of({inner, other}, Dataset(std::make_shared<ZipOfRows>(inner, other)));
    });
}

RTRAIN_DOOR Dataset Dataset::repartition(std::int64_t blocks) const {
    if (blocks < 1) {
        throw DataError("RT-D69", detail::concat("repartition() was called with ", blocks,
                                                 " blocks; expected at least 1"));
    }
    return lazy([inner = *this, blocks] {
        const auto index = inner.blocks();
        return Dataset(
            std::make_shared<Repartitioned>(inner, blocks, index ? index->row_bytes() : 0));
    });
}

RTRAIN_DOOR Dataset Dataset::pack(std::int64_t length, std::string column) const {
    if (length < 1) {
        throw DataError("RT-D69", detail::concat("pack() was called with rows of ", length,
                                                 " values; expected at least 1"));
    }
    return lazy([inner = *this, length, column = std::move(column)] {
        return from_blocks(
            std::make_shared<PackedBlocks>(TransformedBlocks(inner), column, length));
    });
}

RTRAIN_DOOR Dataset Dataset::materialize(std::filesystem::path directory,
                                         std::string version) const {
    return lazy([inner = *this, directory = std::move(directory), version = std::move(version)] {
        return Dataset(std::make_shared<MaterializedRows>(
            MaterializedFiles(TransformedBlocks(inner), directory, version)));
    });
}

RTRAIN_DOOR Batch Dataset::take(std::int64_t rows) const {
    if (const auto rows_of = uncounted()) {
        return rows_of->first(rows);
    }
    return this->rows(at::arange(std::clamp<std::int64_t>(rows, 0, size()), at::kLong));
}

RTRAIN_DOOR Schema Dataset::schema() const {
    const Batch row = take(1);
    Schema schema;
    for (const auto& [name, column] : row.columns()) {
        schema.push_back({name, column.scalar_type(), column.sizes().slice(1).vec(), false});
    }
    for (const auto& [name, column] : row.ragged_columns()) {
        schema.push_back(
            {name, column.values.scalar_type(), column.values.sizes().slice(1).vec(), true});
    }
    return schema;
}

RTRAIN_DOOR Dataset mix(std::vector<std::pair<Dataset, double>> parts) {
    return lazy([parts = std::move(parts)] {
        std::vector<Dataset> datasets;
        std::vector<double> weights;
        for (const auto& [dataset, weight] : parts) {
            datasets.push_back(dataset);
            weights.push_back(weight);
        }
        return in_blocks_of(datasets, Dataset(std::make_shared<MixOfRows>(datasets, weights)));
    });
}

} // namespace rtrain::data
