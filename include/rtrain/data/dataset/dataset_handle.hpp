// SPDX-License-Identifier: Apache-2.0
/// @file
/// Map-style data sets: rows read by number, whatever their source. Declarations for headers that
/// the definitions include; all others include dataset.hpp.
#pragma once

#include <rtrain/data/batch/batch.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rtrain::data {

class BlockIndex;
class Random; // random.hpp
class UnsizedDataset;

/// The type of a column, derived from one row.
struct ColumnType {
    std::string name;
    at::ScalarType type;             ///< of the values
    std::vector<std::int64_t> shape; ///< of a row; of one value if ragged
    bool is_ragged;                  ///< rows may have different numbers of values
};
/// The types of a data set's columns.
using Schema = std::vector<ColumnType>;

/// A handle to a data set; copies share it. Made by from_tensors(), fashion_mnist(), idx(),
/// from_dataset(), from_blocks() or lazy().
class Dataset {
public:
    /// The interface of a source of rows.
    class Source {
    public:
        Source() = default;
        Source(const Source&) = delete;
        Source& operator=(const Source&) = delete;
        virtual ~Source() = default;
        [[nodiscard]] virtual std::int64_t size() const = 0;
        /// The rows with these numbers (int64, one dimension, each in [0, size())), in this order.
        /// Rows may be missing: the batch is then smaller, or empty.
        [[nodiscard]] virtual Batch rows(const at::Tensor& indices) const = 0;
        /// The block index if it is read in blocks: see from_blocks(); else null.
        [[nodiscard]] virtual std::shared_ptr<const BlockIndex> blocks() const { return nullptr; }
        /// The `content` of all rows, for a source that is not read in blocks; 0: not known.
        [[nodiscard]] virtual std::uint64_t content() const { return 0; }
        /// Replaces all of the above if the number of rows is not known; else null.
        [[nodiscard]] virtual std::shared_ptr<const UnsizedDataset> uncounted() const {
            return nullptr;
        }
    };

    /// The interface of a source read many rows at a time, such as a file. Rows are numbered across
    /// blocks. See from_blocks().
    class BlockSource {
    public:
        /// Metadata of a block, available without reading it; constant.
        struct Block {
            std::int64_t rows = 0;
            std::int64_t bytes = 0; ///< of its batch in memory, approximately; 0: not known
            /// A fingerprint of the rows, as far as it is known without reading them; 0: not known.
            std::uint64_t content = 0;
        };

        BlockSource() = default;
        BlockSource(const BlockSource&) = delete;
        BlockSource& operator=(const BlockSource&) = delete;
        virtual ~BlockSource() = default;
        [[nodiscard]] virtual std::vector<Block> blocks() const = 0;
        /// All rows of a block (from 0), in order. Several threads may call it concurrently.
        [[nodiscard]] virtual Batch read(std::int64_t block) const = 0;

        /// Iterates over the rows of a block. Used by one thread at a time.
        class Cursor {
        public:
            Cursor() = default;
            Cursor(const Cursor&) = delete;
            Cursor& operator=(const Cursor&) = delete;
            virtual ~Cursor() = default;
            /// At least one and at most `rows` (at least 1) of the next rows; none at the end of
            /// the block. The batch keeps only its own memory alive.
            [[nodiscard]] virtual Batch next(std::int64_t rows) = 0;
            /// Bytes held in memory between calls, approximately.
            [[nodiscard]] virtual std::int64_t bytes() const { return 0; }
        };
        /// A cursor at row `first_row` (from 0) of a block. Large blocks are read through it: a
        /// source that can read part of a block overrides this; the default reads the block whole
        /// and keeps it. Several threads may call it concurrently.
        [[nodiscard]] virtual std::unique_ptr<Cursor> open(std::int64_t block,
                                                           std::int64_t first_row) const;
        /// True if results of read() may be cached. False if functions before counted() or pack()
        /// may draw random numbers.
        [[nodiscard]] virtual bool is_fixed() const { return true; }
        /// The name of a block in messages: its file, and its position there.
        [[nodiscard]] virtual std::string name_of(std::int64_t block) const {
            return "block " + std::to_string(block);
        }
    };

    explicit Dataset(std::shared_ptr<const Source> source) : source_(std::move(source)) {}

    /// The number of rows. Throws DataError [RT-D71] if it is not known.
    [[nodiscard]] std::int64_t size() const { return source_->size(); }
    [[nodiscard]] Batch rows(const at::Tensor& indices) const { return source_->rows(indices); }
    /// Null if it is not read in blocks.
    [[nodiscard]] std::shared_ptr<const BlockIndex> blocks() const { return source_->blocks(); }
    /// A fingerprint of the rows, as far as it is known without reading them; 0: not known.
    [[nodiscard]] std::uint64_t content() const;
    /// Null if the number of rows is known.
    [[nodiscard]] std::shared_ptr<const UnsizedDataset> uncounted() const {
        return source_->uncounted();
    }

    // Each of these returns a separate data set, and opens and reads nothing until rows are read.
    /// The same rows, each batch transformed by a function, which keeps the number of rows
    /// (DataError RT-D65). Several threads may call it concurrently.
    [[nodiscard]] Dataset map_batches(std::function<Batch(Batch)> function) const;
    /// The same, for functions that draw random numbers. These differ by `seed`, epoch (`.seed` of
    /// the loop's batches counts too) and batch, and are the same on any threads and ranks. Under
    /// data::Streaming a batch is what is read at a time, not what the loop gets. Throws DataError
    /// [RT-D90] when read, if the number of rows is not known.
    ///
    /// @code
    /// auto noisy = points.map_batches([](Batch batch, Random& random) {
    ///     batch["x"] = batch["x"] + 0.1 * torch::randn({batch.size(), 3}, random.generator());
    ///     return batch;
    /// });
    /// @endcode
    [[nodiscard]] Dataset map_batches(std::function<Batch(Batch, Random&)> function,
                                      std::uint64_t seed = 0) const;
    /// The same, for one row at a time: a batch of one row.
    [[nodiscard]] Dataset map(std::function<Batch(Batch)> function) const;
    /// Shuffles the rows, the same way for the same seed; the result has no blocks. For an order
    /// per epoch, use `shuffle` in BatchOptions.
    [[nodiscard]] Dataset shuffle(std::uint64_t seed) const;
    /// Concatenates the values of a ragged column and cuts them into rows of `length` values: a
    /// column of that name, shape (rows, length). Values left over at the end of a block are
    /// dropped. The data set is read once to count them. Throws DataError [RT-D69]; RT-D2, RT-D63
    /// when read.
    [[nodiscard]] Dataset pack(std::int64_t length, std::string column) const;
    /// The same rows, kept in files. The first run to read them writes the files, divided among the
    /// ranks of each node; later runs reuse them. All processes of the node map them. The directory
    /// must be on a disk; choose a different `version` when the functions of earlier stages change.
    /// Throws DataError [RT-D52, RT-D53, RT-D54] when read.
    [[nodiscard]] Dataset materialize(std::filesystem::path directory,
                                      std::string version = "") const;
    /// The rows that a function selects. It returns bool of shape (rows) for a batch of any number
    /// of rows, and decides on each row independently (DataError RT-D73). The number of rows is
    /// then not known before they are read. Only data::Streaming supports that; everything else,
    /// and stages that number rows, throws DataError [RT-D71] unless the data set is counted().
    [[nodiscard]] Dataset filter(std::function<at::Tensor(const Batch&)> keep) const;
    /// The same, for one row at a time: a batch of one row.
    [[nodiscard]] Dataset filter(std::function<bool(const Batch&)> keep) const;
    /// The rows that a function makes of each row: it maps a batch of one row to a batch of any
    /// number, the same each time. The number of rows is then not known, as with filter().
    [[nodiscard]] Dataset flat_map(std::function<Batch(Batch)> function) const;
    /// The same rows, with a known number of rows. The output of filter() and flat_map() is read
    /// once to count it, when the number is first needed. Throws DataError [RT-D72] for generators.
    [[nodiscard]] Dataset counted() const;
    /// Only the named columns. Throws DataError [RT-D2] when read, if one is missing.
    [[nodiscard]] Dataset select_columns(std::vector<std::string> names) const;
    /// The first rows. Throws DataError [RT-D121] for a negative number.
    [[nodiscard]] Dataset limit(std::int64_t rows) const;
    /// Splits the rows in order, as evenly as possible. Throws DataError [RT-D69].
    [[nodiscard]] std::vector<Dataset> split(std::int64_t parts) const;
    /// The first rows for training, and the last ceil(test_size * size()) for tests; with a seed,
    /// shuffled first, and then without blocks. Throws DataError [RT-D69].
    [[nodiscard]] std::pair<Dataset, Dataset>
    train_test_split(double test_size, std::optional<std::uint64_t> seed = std::nullopt) const;
    /// These rows, then the rows of the others.
    [[nodiscard]] Dataset union_with(std::vector<Dataset> others) const;
    /// The columns of both data sets. Throws DataError [RT-D66, RT-D67] when read.
    [[nodiscard]] Dataset zip(Dataset other) const;
    /// Splits the rows into this many blocks of equal size. Throws DataError [RT-D69].
    [[nodiscard]] Dataset repartition(std::int64_t blocks) const;

    /// size(), even if that reads all rows, each time. Throws DataError [RT-D72] for generators.
    [[nodiscard]] std::int64_t count() const { return counted().size(); }
    /// The first rows, in one batch.
    [[nodiscard]] Batch take(std::int64_t rows = 20) const;
    /// Reads the first row.
    [[nodiscard]] Schema schema() const;

private:
    std::shared_ptr<const Source> source_;
};

/// The starting point of a generator of rows.
struct GeneratorRequest {
    std::uint64_t seed = 0;     ///< of the batches; equal on all ranks
    std::int64_t epoch = 0;     ///< from 0
    std::int64_t lane = 0;      ///< in [0, lanes): each has its own rows
    std::int64_t lanes = 1;     ///< the number of lanes
    std::int64_t first_row = 0; ///< of this lane in this epoch: the number of rows to skip
};
/// Returns the next rows, any number; empty at the end. Used by one thread at a time.
using GeneratorNext = std::function<std::optional<Batch>()>;
/// Begins one pass of one lane.
using GeneratorBegin = std::function<GeneratorNext(const GeneratorRequest&)>;

/// Data sets by the name passed to `worker.dataset_shard(name)`.
using Datasets = std::map<std::string, Dataset>;

/// Rows held in memory, one tensor a column; the first dimension counts rows. Throws DataError
/// [RT-D6] when columns have different numbers of rows.
///
/// @code
/// auto points = rtrain::data::from_tensors({{"x", x}, {"y", y}});
/// @endcode
[[nodiscard]] Dataset from_tensors(Batch::Columns columns);

/// A data set that `open` creates on first read: on the training ranks, not in the process that
/// only launches them.
[[nodiscard]] Dataset lazy(std::function<Dataset()> open);

/// Mixes the rows of several data sets in fixed proportions. Every 1000 rows have as many of each
/// as its weight says, in its order, until one is exhausted. Throws DataError [RT-D68] when read.
///
/// @code
/// auto text = rtrain::data::mix({{books, 0.7}, {letters, 0.3}});
/// @endcode
[[nodiscard]] Dataset mix(std::vector<std::pair<Dataset, double>> parts);

} // namespace rtrain::data
