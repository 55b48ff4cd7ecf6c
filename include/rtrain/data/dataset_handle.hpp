// SPDX-License-Identifier: Apache-2.0
/// @file
/// Map-style data sets: rows that can be read by number, behind one type whatever they come from.
/// Declarations, for headers that the definitions include; others include dataset.hpp.
#pragma once

#include <rtrain/data/batch.hpp>

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
class Uncounted;

/// What is known of a column from one row.
struct ColumnType {
    std::string name;
    at::ScalarType type;             ///< of its values
    std::vector<std::int64_t> shape; ///< of a row; of one of its values, if it is ragged
    bool is_ragged;                  ///< rows may have unequally many values
};
/// What is known of a data set's columns.
using Schema = std::vector<ColumnType>;

/// A handle to a data set; copies share it. Made by from_tensors(), fashion_mnist(), idx(),
/// from_dataset(), from_blocks() or lazy().
class Dataset {
public:
    /// What a source of rows offers.
    class Source {
    public:
        Source() = default;
        Source(const Source&) = delete;
        Source& operator=(const Source&) = delete;
        virtual ~Source() = default;
        [[nodiscard]] virtual std::int64_t size() const = 0;
        /// The rows with these numbers (int64, one dimension, each in [0, size())), in this order.
        /// It may have nothing for some of them: the batch is then smaller, or empty.
        [[nodiscard]] virtual Batch rows(const at::Tensor& indices) const = 0;
        /// What is known of its blocks, where it is read in blocks: see from_blocks().
        [[nodiscard]] virtual std::shared_ptr<const BlockIndex> blocks() const { return nullptr; }
        /// As a block's `content`, of all rows, for a source that is not read in blocks; 0: not
        /// known.
        [[nodiscard]] virtual std::uint64_t content() const { return 0; }
        /// What it has in place of all that, where it does not know how many rows there are.
        [[nodiscard]] virtual std::shared_ptr<const Uncounted> uncounted() const { return nullptr; }
    };

    /// What a source offers that is read many rows at a time, such as a file. Rows are numbered
    /// from block to block. See from_blocks().
    class BlockSource {
    public:
        /// What is known of a block without reading it, and always the same.
        struct Block {
            std::int64_t rows = 0;
            std::int64_t bytes = 0; ///< of its batch in memory, about; 0: not known
            /// Another number where its rows are others, as far as that is known without reading
            /// it; 0: not known.
            std::uint64_t content = 0;
        };

        BlockSource() = default;
        BlockSource(const BlockSource&) = delete;
        BlockSource& operator=(const BlockSource&) = delete;
        virtual ~BlockSource() = default;
        [[nodiscard]] virtual std::vector<Block> blocks() const = 0;
        /// All rows of a block (from 0), in order. Called by several threads at a time.
        [[nodiscard]] virtual Batch read(std::int64_t block) const = 0;

        /// Goes through the rows of a block. Used by one thread at a time.
        class Cursor {
        public:
            Cursor() = default;
            Cursor(const Cursor&) = delete;
            Cursor& operator=(const Cursor&) = delete;
            virtual ~Cursor() = default;
            /// At least one and at most `rows` (at least 1) of the next rows; none at the block's
            /// end. The batch keeps no memory alive but its own.
            [[nodiscard]] virtual Batch next(std::int64_t rows) = 0;
            /// What it keeps in memory between calls, about.
            [[nodiscard]] virtual std::int64_t bytes() const { return 0; }
        };
        /// A cursor at row `first_row` (from 0) of a block. Large blocks are read through it: a
        /// source that can read part of a block gives one of its own; this one reads the block
        /// whole and keeps it. Called by several threads at a time.
        [[nodiscard]] virtual std::unique_ptr<Cursor> open(std::int64_t block,
                                                           std::int64_t first_row) const;
        /// Whether what read() gave may be kept. Not where functions in front of counted() or
        /// pack() may draw random numbers.
        [[nodiscard]] virtual bool is_fixed() const { return true; }
        /// What messages call a block: its file, and its place there.
        [[nodiscard]] virtual std::string name_of(std::int64_t block) const {
            return "block " + std::to_string(block);
        }
    };

    explicit Dataset(std::shared_ptr<const Source> source) : source_(std::move(source)) {}

    /// How many rows there are. Throws DataError [RT-D71] where that is not known.
    [[nodiscard]] std::int64_t size() const { return source_->size(); }
    [[nodiscard]] Batch rows(const at::Tensor& indices) const { return source_->rows(indices); }
    /// Null when it is not read in blocks.
    [[nodiscard]] std::shared_ptr<const BlockIndex> blocks() const { return source_->blocks(); }
    /// Another number when the rows are others, as far as that is known without reading them; 0: it
    /// is not.
    [[nodiscard]] std::uint64_t content() const;
    /// Null when it knows how many rows it has.
    [[nodiscard]] std::shared_ptr<const Uncounted> uncounted() const {
        return source_->uncounted();
    }

    // Each of these is a data set of its own: nothing is opened or read before its rows are.
    /// The same rows, each batch through a function, which keeps their number (DataError RT-D65).
    /// Several threads may call it at a time.
    [[nodiscard]] Dataset map_batches(std::function<Batch(Batch)> function) const;
    /// The same, for functions that draw random numbers: those of another `seed`, epoch
    /// (`.seed` of the loop's batches counts, too) or batch are others, and the same on any threads
    /// and ranks. Under data::Streaming a batch is what is read at a time, not what the loop gets.
    /// Throws DataError [RT-D90] when read, where the number of rows is not known.
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
    /// In another order, the same one for the same seed, and then without blocks. Each epoch's
    /// own order is `shuffle` in BatchOptions.
    [[nodiscard]] Dataset shuffle(std::uint64_t seed) const;
    /// The values of a ragged column, one behind the other, in rows of `length` values: a column of
    /// that name, shape (rows, length). Those left at the end of a block are left out. The data set
    /// is read once to count them. Throws DataError [RT-D69]; RT-D2, RT-D63 when read.
    [[nodiscard]] Dataset pack(std::int64_t length, std::string column) const;
    /// The same rows, kept in files: whoever reads them first makes them, on each node its ranks
    /// together, and later runs find them. All processes of the node map them. The directory must
    /// be on a disk; name another `version` when the functions of stages before have changed.
    /// Throws DataError [RT-D52, RT-D53, RT-D54] when read.
    [[nodiscard]] Dataset materialize(std::filesystem::path directory,
                                      std::string version = "") const;
    /// The rows for which a function says so: bool of shape (rows) for a batch of any number of
    /// rows, of which it looks at each by itself (DataError RT-D73). How many there are is then not
    /// known before they are read: data::Streaming can do that; all else, and stages that number
    /// rows, throw DataError [RT-D71], unless they are counted().
    [[nodiscard]] Dataset filter(std::function<at::Tensor(const Batch&)> keep) const;
    /// The same, for one row at a time: a batch of one row.
    [[nodiscard]] Dataset filter(std::function<bool(const Batch&)> keep) const;
    /// The rows that a function makes of each row: given a batch of one row, it gives one of any
    /// number, the same each time. How many there are is then not known, as with filter().
    [[nodiscard]] Dataset flat_map(std::function<Batch(Batch)> function) const;
    /// The same rows, and how many there are: what filter() and flat_map() leave is read once for
    /// that, when it is first asked for. Throws DataError [RT-D72] for generators.
    [[nodiscard]] Dataset counted() const;
    /// Without the other columns. Throws DataError [RT-D2] when read, if one is not there.
    [[nodiscard]] Dataset select_columns(std::vector<std::string> names) const;
    /// The first rows. Throws DataError [RT-D121] for a negative number.
    [[nodiscard]] Dataset limit(std::int64_t rows) const;
    /// In order, and as even as can be. Throws DataError [RT-D69].
    [[nodiscard]] std::vector<Dataset> split(std::int64_t parts) const;
    /// The last ones, ceil(test_size * size()) of them, for tests, the others for training;
    /// shuffled before with a seed, and then without blocks. Throws DataError [RT-D69].
    [[nodiscard]] std::pair<Dataset, Dataset>
    train_test_split(double test_size, std::optional<std::uint64_t> seed = std::nullopt) const;
    /// These rows, then those of the others.
    [[nodiscard]] Dataset union_with(std::vector<Dataset> others) const;
    /// The columns of both side by side. Throws DataError [RT-D66, RT-D67] when read.
    [[nodiscard]] Dataset zip(Dataset other) const;
    /// In this many blocks of equally many rows. Throws DataError [RT-D69].
    [[nodiscard]] Dataset repartition(std::int64_t blocks) const;

    /// size(), also where all rows have to be read for that, each time. Throws DataError [RT-D72]
    /// for generators.
    [[nodiscard]] std::int64_t count() const { return counted().size(); }
    /// The first rows, in one batch.
    [[nodiscard]] Batch take(std::int64_t rows = 20) const;
    /// Reads the first row.
    [[nodiscard]] Schema schema() const;

private:
    std::shared_ptr<const Source> source_;
};

/// Where a generator of rows is to begin.
struct GeneratorRequest {
    std::uint64_t seed = 0;     ///< of the batches, equal on all ranks
    std::int64_t epoch = 0;     ///< from 0
    std::int64_t lane = 0;      ///< in [0, lanes): each has rows of its own
    std::int64_t lanes = 1;     ///< how many there are
    std::int64_t first_row = 0; ///< of this lane in this epoch: how many are left out
};
/// Gives the next rows, any number; empty at the end. Used by one thread at a time.
using GeneratorNext = std::function<std::optional<Batch>()>;
/// Begins one pass of one lane.
using GeneratorBegin = std::function<GeneratorNext(const GeneratorRequest&)>;

/// Data sets by the name that `worker.dataset_shard(name)` asks for.
using Datasets = std::map<std::string, Dataset>;

/// Rows held in memory, one tensor a column; the first dimension counts rows. Throws DataError
/// [RT-D6] when columns have different numbers of rows.
///
/// @code
/// auto points = rtrain::data::from_tensors({{"x", x}, {"y", y}});
/// @endcode
[[nodiscard]] Dataset from_tensors(Batch::Columns columns);

/// A data set that `open` makes when it is first read: on the ranks that train, not in the process
/// that only launches them.
[[nodiscard]] Dataset lazy(std::function<Dataset()> open);

/// Rows of several data sets in fixed proportions: of each as many in every 1000 rows as its weight
/// says, in its order, until one has no more. Throws DataError [RT-D68] when read.
///
/// @code
/// auto text = rtrain::data::mix({{books, 0.7}, {letters, 0.3}});
/// @endcode
[[nodiscard]] Dataset mix(std::vector<std::pair<Dataset, double>> parts);

} // namespace rtrain::data
